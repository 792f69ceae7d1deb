#include "client/read/xml.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace annulus::client {
namespace {

absl::string_view WithoutPrefix(absl::string_view name) { return name.substr(name.rfind(':') + 1); }

class DepthCheck : public pugi::xml_tree_walker {
 public:
  explicit DepthCheck(int limit) : limit_(limit) {}
  bool for_each(pugi::xml_node&) override { return depth() < limit_; }

 private:
  const int limit_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<pugi::xml_document>> ParseXml(absl::string_view what,
                                                             absl::string_view text,
                                                             const ReadBudget& budget, XmlUse use) {
  const ReadLimits& limits = budget.limits();
  if (absl::Status time = budget.CheckTime(what); !time.ok()) return time;
  // A tag with a thousand attributes takes as much memory as a thousand tags.
  const auto nodes =
      std::count_if(text.begin(), text.end(), [](char c) { return c == '<' || c == '='; });
  if (nodes > limits.xml_tags) {
    return absl::ResourceExhaustedError(
        absl::StrCat(what, " has more than ", limits.xml_tags,
                     " tags and attributes; save it as several files"));
  }
  auto document = std::make_unique<pugi::xml_document>();
  // Keep text that consists of white space only, such as the blank between two runs.
  const pugi::xml_parse_result result =
      document->load_buffer(text.data(), text.size(), pugi::parse_default | pugi::parse_ws_pcdata,
                            use == XmlUse::kPage ? pugi::encoding_utf8 : pugi::encoding_auto);
  if (!result) {
    return absl::InvalidArgumentError(absl::StrCat(what, " has a part that is not XML (",
                                                   result.description(),
                                                   "); it may be cut off or broken"));
  }
  if (use == XmlUse::kPage) return document;
  DepthCheck depth(limits.xml_depth);
  if (!document->traverse(depth)) {
    return absl::ResourceExhaustedError(
        absl::StrCat(what, " has elements nested deeper than ", limits.xml_depth,
                     ", deeper than any real document; convert it to plain text"));
  }
  return document;
}

absl::string_view LocalName(const pugi::xml_node& node) { return WithoutPrefix(node.name()); }

absl::string_view LocalAttribute(const pugi::xml_node& node, absl::string_view name) {
  for (const pugi::xml_attribute& attribute : node.attributes()) {
    if (WithoutPrefix(attribute.name()) == name) return attribute.value();
  }
  return "";
}

int LocalNumber(const pugi::xml_node& node, absl::string_view name, int otherwise) {
  int number = 0;
  return absl::SimpleAtoi(LocalAttribute(node, name), &number) ? number : otherwise;
}

pugi::xml_node LocalChild(const pugi::xml_node& node, absl::string_view name) {
  for (const pugi::xml_node& child : node.children()) {
    if (LocalName(child) == name) return child;
  }
  return {};
}

}  // namespace annulus::client
