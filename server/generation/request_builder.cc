#include "server/generation/request_builder.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/api/field_errors.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/generation/answer_constraint.h"
#include "server/generation/attention_messages.h"
#include "server/generation/chat_messages.h"
#include "server/work/work_cost.h"

namespace annulus::server {
namespace {

constexpr size_t kLongestRequestId = 128;
constexpr int kMostAlternatives = 20;  // of a token, with log probabilities

absl::string_view InputField(const v1::GenerationSpec& spec) {
  switch (spec.input_case()) {
    case v1::GenerationSpec::kMessages:
      return "spec.messages";
    case v1::GenerationSpec::kTokenIds:
      return "spec.token_ids";
    default:
      return "spec.text";
  }
}

// The input as text; an error if it is token ids or missing. `joined` owns the text of messages.
absl::StatusOr<absl::string_view> InputText(const v1::GenerationSpec& spec, std::string& joined) {
  switch (spec.input_case()) {
    case v1::GenerationSpec::kText:
      return spec.text();
    case v1::GenerationSpec::kMessages: {
      ANNULUS_ASSIGN_OR_RETURN(joined, JoinContents(spec.messages(), "spec.messages"));
      return joined;
    }
    default:
      return FieldError("spec.input",
                        "there is no prompt; send one of messages, text and token_ids");
  }
}

absl::StatusOr<std::vector<int32_t>> TokenizeInput(const v1::GenerationSpec& spec,
                                                   const Engine& engine, bool add_special,
                                                   const CancelFlag& cancel) {
  if (spec.input_case() == v1::GenerationSpec::kTokenIds) {
    if (spec.token_ids().ids().empty()) {
      return FieldError("spec.token_ids", "the list is empty; send at least one token id");
    }
    return std::vector<int32_t>(spec.token_ids().ids().begin(), spec.token_ids().ids().end());
  }
  std::string joined;
  ANNULUS_ASSIGN_OR_RETURN(const absl::string_view text, InputText(spec, joined));
  if (text.empty() && spec.documents().empty()) {
    return FieldError(InputField(spec), "the prompt is empty: send text, or name documents");
  }
  auto ids = engine.Tokenize(text, add_special, cancel);
  if (!ids.ok() && absl::IsInvalidArgument(ids.status())) {
    return FieldError(InputField(spec), ids.status().message());
  }
  return ids;
}

// The titles and marks of the documents, for their frames.
absl::StatusOr<FramedDocuments> Frame(const v1::GenerationSpec& spec, const Engine& engine,
                                      const FoundDocuments& found) {
  constexpr size_t kMarkDigits = 32;  // 128 bits: no text can be made to hold those of its own hash
  if (!v1::Framing_IsValid(spec.framing())) {
    return FieldError("spec.framing", UnknownValue(spec.framing(), v1::Framing_descriptor()));
  }
  FramedDocuments framed;
  framed.framed =
      spec.framing() != v1::FRAMING_NONE && spec.has_messages() && engine.model().frames_documents;
  for (size_t i = 0; i < found.list.size(); ++i) {
    const StoredDocument& document = *found.list[i];
    ChatDocument& chat = framed.documents.emplace_back();
    chat.name = std::string(found.TitleOf(i));
    if (document.holds_end_mark) chat.mark = document.sha256.substr(0, kMarkDigits);
  }
  return framed;
}

// The ids of the input, including special ones, and the places of the documents among them.
struct Input {
  std::vector<int32_t> ids;
  std::vector<DocumentPlace> places;
  bool system_folded = false;
  AnswerReading reading;
};

absl::StatusOr<Input> ReadFramedText(const v1::GenerationSpec& spec, const Engine& engine,
                                     const FramedDocuments& documents, const CancelFlag& cancel) {
  std::string joined;
  ANNULUS_ASSIGN_OR_RETURN(const absl::string_view text, InputText(spec, joined));
  auto chat = engine.FrameText(documents.documents, text, cancel);
  if (absl::IsInvalidArgument(chat.status())) {
    return FieldError(InputField(spec), chat.status().message());
  }
  ANNULUS_RETURN_IF_ERROR(chat.status());
  return Input{std::move(chat->token_ids), std::move(chat->places), false, {}};
}

absl::StatusOr<Input> ReadInput(const v1::GenerationSpec& spec, const Engine& engine,
                                FramedDocuments documents, const CancelFlag& cancel,
                                MemoryGrant& memory) {
  if (spec.has_messages() && engine.model().has_chat_template) {
    ANNULUS_ASSIGN_OR_RETURN(RenderedChat chat,
                             ApplyChatTemplate(engine, spec.messages(), "spec.messages",
                                               std::move(documents), cancel, memory));
    return Input{std::move(chat.token_ids), std::move(chat.places), chat.system_folded,
                 std::move(chat.reading)};
  }
  Input input;
  const size_t count = documents.documents.size();
  if (count == 0) {
    ANNULUS_ASSIGN_OR_RETURN(input.ids, TokenizeInput(spec, engine, /*add_special=*/true, cancel));
    return input;
  }
  if (documents.framed) return ReadFramedText(spec, engine, documents, cancel);
  ANNULUS_ASSIGN_OR_RETURN(const std::vector<int32_t> behind,
                           TokenizeInput(spec, engine, /*add_special=*/false, cancel));
  ANNULUS_ASSIGN_OR_RETURN(input.ids, engine.Tokenize("", /*add_special=*/true, cancel));
  input.places.assign(count, {input.ids.size(), input.ids.size()});
  input.ids.insert(input.ids.end(), behind.begin(), behind.end());
  return input;
}

// nullopt: the server chooses.
absl::StatusOr<std::optional<Speculation>> ReadSpeculation(v1::Speculation speculation) {
  switch (speculation) {
    case v1::SPECULATION_UNSPECIFIED:
      return std::nullopt;
    case v1::SPECULATION_OFF:
      return Speculation::kOff;
    case v1::SPECULATION_NGRAM:
      return Speculation::kNgram;
    default:
      return FieldError("spec.speculation",
                        UnknownValue(speculation, v1::Speculation_descriptor()));
  }
}

// Upper bound of the memory for names and frames, with every byte of a name escaped.
size_t FrameWork(const FoundDocuments& found) {
  constexpr size_t kWords = 1024;
  constexpr size_t kEscape = 6;
  size_t bytes = 0;
  for (size_t i = 0; i < found.list.size(); ++i) {
    const StoredDocument& document = *found.list[i];
    bytes += kWords + kEscape * std::max({document.title.size(), document.name.size(),
                                          found.TitleOf(i).size()});
  }
  // The factor that TokenizeMemory uses for a text without spaces.
  return 64 * bytes;
}

// Upper bound of the memory of BuildPrompt at its peak, except for the output of a chat template.
size_t PromptWork(const v1::GenerationSpec& spec, bool has_template, const FoundDocuments& found) {
  size_t ids = 0;
  for (const DocumentPtr& document : found.list) ids += document->tokens.size();
  size_t bytes = 0;
  switch (spec.input_case()) {
    case v1::GenerationSpec::kMessages:
      bytes = has_template ? MessagesWork(spec.messages()) : JoinedWork(spec.messages());
      break;
    case v1::GenerationSpec::kText:
      bytes = TokenizeMemory::Of(spec.text());
      break;
    default:
      ids += static_cast<size_t>(spec.token_ids().ids_size());
  }
  // With documents, the ids of the input are copied into a prompt together with theirs.
  if (found.list.empty()) return bytes + ids * sizeof(int32_t);
  return 2 * (bytes + FrameWork(found)) + 2 * ids * sizeof(int32_t);
}

// Builds the prompt: puts the ids of the documents at their places among those of the input.
void PutTogether(const Input& input, const std::vector<DocumentPtr>& documents,
                 RequestSpec& request) {
  ANNULUS_CHECK(input.places.size() == documents.size()) << "a document without a place";
  std::vector<int32_t>& prompt = request.prompt;
  size_t taken = 0;  // how many of the input's ids are in the prompt
  const auto take = [&](size_t end) {
    const auto begin = input.ids.begin();
    prompt.insert(prompt.end(), begin + static_cast<std::ptrdiff_t>(taken),
                  begin + static_cast<std::ptrdiff_t>(end));
    taken = end;
  };
  for (size_t i = 0; i < documents.size(); ++i) {
    take(input.places[i].at);
    request.documents.push_back({static_cast<int32_t>(prompt.size()), documents[i]->sha256,
                                 static_cast<int32_t>(documents[i]->tokens.size())});
    documents[i]->tokens.AppendTo(prompt);
    take(input.places[i].frame_end);
    request.shared_prefixes.push_back(static_cast<int32_t>(prompt.size()));
  }
  take(input.ids.size());
}

// Fills in the prompt and shared_prefixes, the ends of its documents, because other prompts are
// likely to begin with the same documents.
absl::Status BuildPrompt(const v1::GenerationSpec& spec, const Engine& engine,
                         const FoundDocuments& found, CallMemory& memory, const CancelFlag& cancel,
                         BuiltRequest& built) {
  RequestSpec& request = built.spec;
  request.documents_found = found.at;
  const std::vector<DocumentPtr>& documents = found.list;
  const size_t foreseen = PromptWork(spec, engine.model().has_chat_template, found);
  ANNULUS_RETURN_IF_ERROR(memory.Hold(CallMemory::kWork, foreseen));
  WorkGrant grant(memory, foreseen);
  ANNULUS_ASSIGN_OR_RETURN(FramedDocuments framed, Frame(spec, engine, found));
  ANNULUS_ASSIGN_OR_RETURN(Input input, ReadInput(spec, engine, std::move(framed), cancel, grant));
  built.system_folded = input.system_folded;
  request.reading = std::move(input.reading);
  if (documents.empty()) {
    request.prompt = std::move(input.ids);
    return absl::OkStatus();
  }
  size_t total = input.ids.size();
  for (const DocumentPtr& document : documents) total += document->tokens.size();
  const int64_t context = engine.model().max_context;
  if (static_cast<int64_t>(total) >= context) {
    return WithField(ContextError(absl::StrCat("documents and input together have ", total,
                                               " tokens, and the model's context is ", context,
                                               ", including the answer; name fewer documents"),
                                  static_cast<int64_t>(total) + 1, context),
                     "spec.documents");
  }
  request.prompt.reserve(total);
  PutTogether(input, documents, request);
  return absl::OkStatus();
}

absl::StatusOr<int32_t> ReadPriority(int32_t priority) {
  constexpr int32_t kMost = 2;
  if (priority >= -kMost && priority <= kMost) return priority;
  return FieldError(
      "spec.priority",
      absl::StrCat(priority,
                   " is not allowed: -2 to 2; above 0 the request comes before your other "
                   "requests, below 0 after them"));
}

// Upper bound of the log probabilities of the prompt, which the engine gathers, with texts of
// tokens of usual length.
size_t PromptLogprobsBytes(const RequestSpec& request) {
  constexpr size_t kTextBytes = sizeof(std::string) + 64;
  const std::optional<int32_t> alternatives = request.sampling.prompt_logprobs;
  if (!alternatives.has_value()) return 0;
  const auto tokens = static_cast<size_t>(std::clamp(*alternatives, 0, kMostAlternatives)) + 1;
  return request.prompt.size() *
         (sizeof(TokenLogprob) + tokens * (sizeof(std::pair<int32_t, float>) + kTextBytes));
}

// The fields that are set; the model's defaults for the others.
SamplingParams ReadSampling(const v1::SamplingParams& message, const SamplingParams& defaults) {
  SamplingParams params = defaults;
  if (message.has_max_tokens()) params.max_tokens = message.max_tokens();
  if (message.has_min_tokens()) params.min_tokens = message.min_tokens();
  if (message.has_temperature()) params.temperature = message.temperature();
  if (message.has_top_p()) params.top_p = message.top_p();
  if (message.has_top_k()) params.top_k = message.top_k();
  if (message.has_min_p()) params.min_p = message.min_p();
  if (message.has_frequency_penalty()) params.frequency_penalty = message.frequency_penalty();
  if (message.has_presence_penalty()) params.presence_penalty = message.presence_penalty();
  if (message.has_repetition_penalty()) params.repetition_penalty = message.repetition_penalty();
  if (message.has_seed()) params.seed = message.seed();
  params.stop.assign(message.stop().begin(), message.stop().end());
  params.stop_token_ids.assign(message.stop_token_ids().begin(), message.stop_token_ids().end());
  if (message.has_ignore_eos()) params.ignore_eos = message.ignore_eos();
  if (message.has_logprobs()) params.logprobs = message.logprobs();
  if (message.has_prompt_logprobs()) params.prompt_logprobs = message.prompt_logprobs();
  params.logit_bias.insert(message.logit_bias().begin(), message.logit_bias().end());
  return params;
}

// Reads the fields that need no prompt, so that a request is told all that is wrong with them.
absl::Status ReadFields(const v1::GenerationSpec& spec, const Engine& engine,
                        RequestSpec& request) {
  std::vector<absl::Status> errors;
  const auto take = [&errors](auto read, auto& into) {
    if (read.ok()) {
      into = *std::move(read);
    } else {
      errors.push_back(read.status());
    }
  };
  take(ReadAttention(spec.attention(), "spec.attention"), request.attention);
  take(ReadSpeculation(spec.speculation()), request.speculation);
  take(ReadPriority(spec.priority()), request.priority);
  request.sampling = ReadSampling(spec.sampling(), engine.model().default_sampling);
  RequestSpec alone;
  alone.prompt = {0};
  alone.sampling = request.sampling;
  // Whether it is too large can be told only of the whole.
  const absl::Status sampling = engine.Validate(alone);
  if (absl::IsInvalidArgument(sampling)) errors.push_back(PlaceField(spec, sampling));
  return JoinFieldErrors(errors);
}

}  // namespace

std::string UnknownValue(int value, const google::protobuf::EnumDescriptor* known) {
  std::vector<std::string> names;
  for (int i = 0; i < known->value_count(); ++i) names.push_back(known->value(i)->name());
  return absl::StrCat(value, " is not allowed; this server knows ", absl::StrJoin(names, ", "));
}

absl::string_view FoundDocuments::TitleOf(size_t index) const {
  if (index < titles.size() && !titles[index].empty()) return titles[index];
  const StoredDocument& document = *list[index];
  return document.title.empty() ? document.name : document.title;
}

absl::StatusOr<FoundDocuments> FindDocuments(const v1::GenerationSpec& spec,
                                             const DocumentStore& store, const TenantId& tenant) {
  FoundDocuments found{.list = {}, .at = std::chrono::steady_clock::now()};
  for (const std::string& name : spec.documents()) {
    ANNULUS_RETURN_IF_ERROR(CheckDocumentName("spec.documents", name));
    ANNULUS_ASSIGN_OR_RETURN(DocumentPtr document, store.Get(tenant, name));
    document->last_used.store(std::chrono::steady_clock::now(), std::memory_order_relaxed);
    found.list.push_back(std::move(document));
  }
  return found;
}

absl::Status CheckRequestId(absl::string_view request_id) {
  bool allowed = !request_id.empty() && request_id.size() <= kLongestRequestId;
  for (const char c : request_id) allowed = allowed && absl::ascii_isprint(c);
  if (allowed) return absl::OkStatus();
  return FieldError("spec.request_id", absl::StrCat("request_id ", QuoteName(request_id),
                                                    " is not allowed: 1 to 128 printable ASCII "
                                                    "characters"));
}

absl::StatusOr<BuiltRequest> BuildRequest(const v1::GenerationSpec& spec, const Engine& engine,
                                          const DocumentStore& documents, const TenantId& tenant,
                                          CallMemory& memory, const CancelFlag& cancel,
                                          const FoundDocuments* found) {
  BuiltRequest built;
  RequestSpec& request = built.spec;
  request.tenant = tenant;
  // Check these fields before doing much work.
  ANNULUS_RETURN_IF_ERROR(ReadFields(spec, engine, request));
  request.attention_details = spec.attention().details();
  request.digest = spec.digest();
  request.ignore_cache = spec.ignore_cache();
  request.evidence = spec.evidence();
  FoundDocuments own;
  if (found == nullptr) {
    ANNULUS_ASSIGN_OR_RETURN(own, FindDocuments(spec, documents, tenant));
    found = &own;
  }
  ANNULUS_RETURN_IF_ERROR(BuildPrompt(spec, engine, *found, memory, cancel, built));
  ANNULUS_RETURN_IF_ERROR(ReadToolChoice(spec, request.reading));
  ANNULUS_ASSIGN_OR_RETURN(request.output, CompileOutput(spec, engine, request, memory, cancel));
  if (request.evidence) {
    built.evidence = std::make_shared<const EvidenceSource>(
        found->list, documents, engine.model().evidence_heads, found->pieces);
  }
  // Choose the seed here, so that the first event can report it.
  if (!request.sampling.seed.has_value()) request.sampling.seed = std::random_device()();
  if (!spec.sampling().has_max_tokens()) {
    // If less than the default number of tokens is left in the context, the default is what is
    // left.
    const int64_t left = engine.model().max_context - static_cast<int64_t>(request.prompt.size());
    request.sampling.max_tokens =
        static_cast<int32_t>(std::clamp<int64_t>(left, 1, request.sampling.max_tokens));
  }
  return built;
}

size_t LeastAnswerBytes(const v1::SamplingParams& sampling) {
  const bool runs_to_its_end = sampling.ignore_eos() && sampling.stop().empty() &&
                               sampling.stop_token_ids().empty() && sampling.has_max_tokens();
  const int32_t tokens = runs_to_its_end ? sampling.max_tokens() : sampling.min_tokens();
  if (tokens < 1) return 0;
  // Each token has an id, and for each log probability a message with a 4-byte number. Fields with
  // value 0 are not sent, but at most one of these can be 0.
  constexpr size_t kId = 1;
  constexpr size_t kLogprob = 7;
  const size_t logprobs =
      static_cast<size_t>(std::clamp(sampling.logprobs(), 0, kMostAlternatives));
  return static_cast<size_t>(tokens) * (kId + logprobs * kLogprob);
}

size_t KeptBytes(const RequestSpec& request) {
  constexpr size_t kMapNode = 64;
  size_t bytes = request.output.bytes +
                 (request.prompt.capacity() + request.shared_prefixes.capacity() +
                  request.sampling.stop_token_ids.capacity()) *
                     sizeof(int32_t) +
                 request.sampling.logit_bias.size() * kMapNode + request.reading.tools_bytes;
  for (const std::string& stop : request.sampling.stop) bytes += sizeof(stop) + stop.capacity();
  for (const PromptDocument& document : request.documents) {
    bytes += sizeof(document) + document.content.capacity();
  }
  if (request.reading.format != nullptr) bytes += AnswerReading::kOwnBytes;
  return bytes + PromptLogprobsBytes(request);
}

absl::Status PlaceField(const v1::GenerationSpec& spec, absl::Status status) {
  return MoveFields(status, [&spec](absl::string_view field) {
    return field == "input" ? std::string(InputField(spec)) : absl::StrCat("spec.", field);
  });
}

absl::Status TooLargeError(const v1::GenerationSpec& spec, const absl::Status& status,
                           int64_t needed, int64_t available) {
  const auto limit = status.GetPayload(kLimitPayload);
  absl::Status error;
  if (limit == absl::Cord("memory")) {
    error = ReasonError(status.code(), v1::ERROR_REASON_MEMORY_TOO_SMALL, status.message());
  } else if (limit == absl::Cord("answer")) {
    error = ReasonError(status.code(), v1::ERROR_REASON_ANSWER_TOO_LARGE, status.message());
  } else {
    error = ContextError(status.message(), needed, available);
  }
  if (const auto field = status.GetPayload(kFieldPayload)) error.SetPayload(kFieldPayload, *field);
  return PlaceField(spec, std::move(error));
}

absl::Status ContextError(absl::string_view message, int64_t needed, int64_t available) {
  return ReasonError(absl::StatusCode::kOutOfRange, v1::ERROR_REASON_CONTEXT_TOO_LONG, message,
                     {{"needed", absl::StrCat(needed)}, {"available", absl::StrCat(available)}});
}

}  // namespace annulus::server
