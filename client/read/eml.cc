#include "client/read/eml.h"

#include <gmime/gmime.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/read/encoding.h"
#include "client/read/web/html.h"

namespace annulus::client {
namespace {

struct Release {
  void operator()(void* object) const { g_object_unref(object); }
};
template <typename T>
using Owned = std::unique_ptr<T, Release>;

struct Free {
  void operator()(char* text) const { g_free(text); }
};

constexpr int kMostDepth = 32;  // parts inside each other

class MailReader {
 public:
  MailReader(absl::string_view what, ReadContext& context) : what_(what), context_(context) {}

  absl::StatusOr<Mail> Read(absl::string_view bytes) {
    static const bool started = (g_mime_init(), true);
    (void)started;
    const Owned<GMimeStream> stream(g_mime_stream_mem_new_with_buffer(bytes.data(), bytes.size()));
    const Owned<GMimeParser> parser(g_mime_parser_new_with_stream(stream.get()));
    const Owned<GMimeMessage> message(g_mime_parser_construct_message(parser.get(), nullptr));
    if (message == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(what_, " begins like a mail message but is none; save its text as txt"));
    }
    AddHeaders(message.get());
    const absl::Status status = AddPart(g_mime_message_get_mime_part(message.get()), 0);
    if (!status.ok()) return status;
    return std::move(mail_);
  }

 private:
  void AddHeader(const char* name, const std::string& value) {
    if (!value.empty()) absl::StrAppend(&mail_.text, name, ": ", value, "\n");
  }

  void AddHeaders(GMimeMessage* message) {
    constexpr std::pair<GMimeAddressType, const char*> kAddresses[] = {
        {GMIME_ADDRESS_TYPE_FROM, "From"},
        {GMIME_ADDRESS_TYPE_TO, "To"},
        {GMIME_ADDRESS_TYPE_CC, "Cc"},
        {GMIME_ADDRESS_TYPE_BCC, "Bcc"}};
    for (const auto& [type, name] : kAddresses) {
      InternetAddressList* const list = g_mime_message_get_addresses(message, type);
      if (list == nullptr || internet_address_list_length(list) == 0) continue;
      const std::unique_ptr<char, Free> text(
          internet_address_list_to_string(list, nullptr, /*encode=*/false));
      if (text != nullptr) AddHeader(name, text.get());
    }
    // As written: the sender's own time.
    const char* const date = g_mime_object_get_header(GMIME_OBJECT(message), "Date");
    if (date != nullptr) AddHeader("Date", date);
    const char* const subject = g_mime_message_get_subject(message);
    if (subject != nullptr) AddHeader("Subject", subject);
  }

  absl::StatusOr<std::string> Content(GMimePart* part) {
    GMimeDataWrapper* const wrapper = g_mime_part_get_content(part);
    if (wrapper == nullptr) return std::string();
    const Owned<GMimeStream> stream(g_mime_stream_mem_new());
    g_mime_data_wrapper_write_to_stream(wrapper, stream.get());
    const GByteArray* const bytes =
        g_mime_stream_mem_get_byte_array(GMIME_STREAM_MEM(stream.get()));
    const absl::Status taken = context_.budget.TakeBytes(what_, bytes->len);
    if (!taken.ok()) return taken;
    return std::string(reinterpret_cast<const char*>(bytes->data), bytes->len);
  }

  absl::Status AddPart(GMimeObject* part, int depth) {
    const absl::Status time = context_.budget.CheckTime(what_);
    if (!time.ok()) return time;
    const absl::Status entry =
        part == nullptr ? absl::OkStatus() : context_.budget.TakeEntry(what_);
    if (part == nullptr || !entry.ok()) return entry;
    if (depth >= kMostDepth) {
      return absl::ResourceExhaustedError(
          absl::StrCat(what_, " has parts nested deeper than ", kMostDepth));
    }
    if (GMIME_IS_MULTIPART(part)) return AddMultipart(GMIME_MULTIPART(part), depth);
    if (GMIME_IS_MESSAGE_PART(part)) return AddMessage(GMIME_MESSAGE_PART(part));
    if (!GMIME_IS_PART(part)) return absl::OkStatus();
    absl::StatusOr<std::string> bytes = Content(GMIME_PART(part));
    if (!bytes.ok()) return bytes.status();
    const GMimeContentType* const type = g_mime_object_get_content_type(part);
    auto* const mutable_type = const_cast<GMimeContentType*>(type);
    const char* const name = g_mime_part_get_filename(GMIME_PART(part));
    const char* const disposition = g_mime_object_get_disposition(part);
    const bool attached = name != nullptr || (disposition != nullptr &&
                                              absl::EqualsIgnoreCase(disposition, "attachment"));
    // What a saved page needs to be shown.
    for (const char* kind : {"css", "javascript", "ecmascript"}) {
      if (g_mime_content_type_is_type(mutable_type, "text", kind) && !attached) {
        return absl::OkStatus();
      }
    }
    if (!attached && g_mime_content_type_is_type(mutable_type, "text", "*")) {
      const bool is_html = g_mime_content_type_is_type(mutable_type, "text", "html");
      const char* const charset = g_mime_object_get_content_type_parameter(part, "charset");
      return AddText(*std::move(bytes), is_html, charset == nullptr ? "" : charset);
    }
    // A picture that an HTML part shows.
    const bool shown = g_mime_object_get_content_id(part) != nullptr &&
                       g_mime_content_type_is_type(mutable_type, "image", "*");
    if (!shown) mail_.attachments.push_back({name == nullptr ? "" : name, *std::move(bytes)});
    return absl::OkStatus();
  }

  absl::Status AddMultipart(GMimeMultipart* parts, int depth) {
    const int count = g_mime_multipart_get_count(parts);
    const GMimeContentType* type = g_mime_object_get_content_type(GMIME_OBJECT(parts));
    if (!g_mime_content_type_is_type(const_cast<GMimeContentType*>(type), "multipart",
                                     "alternative")) {
      for (int i = 0; i < count; ++i) {
        const absl::Status status = AddPart(g_mime_multipart_get_part(parts, i), depth + 1);
        if (!status.ok()) return status;
      }
      return absl::OkStatus();
    }
    // The first form that has text; the plain one comes first.
    const size_t before = mail_.text.size();
    for (int i = 0; i < count; ++i) {
      const absl::Status status = AddPart(g_mime_multipart_get_part(parts, i), depth + 1);
      if (!status.ok()) return status;
      const absl::string_view added = absl::string_view(mail_.text).substr(before);
      if (!absl::StripAsciiWhitespace(added).empty()) break;
    }
    return absl::OkStatus();
  }

  // A message inside the message is a document of its own.
  absl::Status AddMessage(GMimeMessagePart* part) {
    GMimeMessage* const message = g_mime_message_part_get_message(part);
    if (message == nullptr) return absl::OkStatus();
    const std::unique_ptr<char, Free> text(g_mime_object_to_string(GMIME_OBJECT(message), nullptr));
    if (text == nullptr) return absl::OkStatus();
    std::string bytes(text.get());
    const absl::Status taken = context_.budget.TakeBytes(what_, static_cast<int64_t>(bytes.size()));
    if (!taken.ok()) return taken;
    mail_.attachments.push_back({"message.eml", std::move(bytes)});
    return absl::OkStatus();
  }

  absl::Status AddText(std::string bytes, bool is_html, const std::string& charset) {
    absl::StatusOr<Utf8Text> text =
        ToUtf8(what_, std::move(bytes), {.declared = charset, .forced = context_.options.encoding});
    if (!text.ok()) return text.status();
    if (text->guessed || text->replaced > 0) {
      for (std::string& remark : DescribeConversion(what_, *text)) {
        context_.remarks.push_back(std::move(remark));
      }
    }
    if (is_html) {
      ReadOptions as_utf8 = context_.options;
      as_utf8.encoding.clear();
      ReadContext page_context{context_.budget, as_utf8};
      text = ReadHtml(what_, std::move(text->text), page_context);
      if (!text.ok()) return text.status();
      context_.left_out.hidden += page_context.left_out.hidden;
      context_.left_out.alts += page_context.left_out.alts;
    }
    absl::StrAppend(&mail_.text, "\n", text->text);
    return absl::OkStatus();
  }

  const absl::string_view what_;
  ReadContext& context_;
  Mail mail_;
};

// Whether a line looks like a header: a name and a colon.
bool IsHeader(absl::string_view text) {
  const size_t end = text.find_first_of(": \t\r\n");
  return end != absl::string_view::npos && end > 0 && text[end] == ':';
}

}  // namespace

std::vector<absl::string_view> SplitMailbox(absl::string_view bytes) {
  constexpr absl::string_view kFrom = "From ";
  std::vector<absl::string_view> messages;
  size_t begin = std::min(bytes.find('\n'), bytes.size() - 1) + 1;  // behind the line
  for (size_t at = begin; at < bytes.size();) {
    const size_t end = std::min(bytes.find('\n', at), bytes.size() - 1) + 1;
    const absl::string_view above = bytes.substr(0, at);
    if (absl::StartsWith(bytes.substr(at), kFrom) && IsHeader(bytes.substr(end)) &&
        (absl::EndsWith(above, "\n\n") || absl::EndsWith(above, "\n\r\n"))) {
      messages.push_back(bytes.substr(begin, at - begin));
      begin = end;
    }
    at = end;
  }
  messages.push_back(bytes.substr(begin));
  return messages;
}

absl::StatusOr<Mail> ReadEml(absl::string_view what, absl::string_view bytes,
                             ReadContext& context) {
  return MailReader(what, context).Read(bytes);
}

}  // namespace annulus::client
