#include "server/work/message_layout.h"

#include <google/protobuf/message.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace annulus::server {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::MessageFactory;
using google::protobuf::internal::WireFormatLite;

size_t NumberBytes(FieldDescriptor::CppType type) {
  switch (type) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return 1;
    case FieldDescriptor::CPPTYPE_INT32:
    case FieldDescriptor::CPPTYPE_UINT32:
    case FieldDescriptor::CPPTYPE_FLOAT:
    case FieldDescriptor::CPPTYPE_ENUM:
      return 4;
    default:
      return 8;
  }
}

// Layouts of all message types that were asked for, and of those inside of them.
class LayoutTable {
 public:
  const MessageLayout& Get(const Descriptor& descriptor) {
    std::lock_guard lock(mutex_);
    return GetLocked(descriptor);
  }

 private:
  const MessageLayout& GetLocked(const Descriptor& descriptor) {
    std::unique_ptr<MessageLayout>& layout = layouts_[&descriptor];
    if (layout != nullptr) return *layout;
    layout = std::make_unique<MessageLayout>();
    MessageLayout& made = *layout;  // the table may grow, and types may contain each other
    made.object_bytes =
        MessageFactory::generated_factory()->GetPrototype(&descriptor)->SpaceUsedLong();
    for (int i = 0; i < descriptor.field_count(); ++i) {
      made.fields.push_back(FieldLocked(*descriptor.field(i)));
    }
    std::sort(made.fields.begin(), made.fields.end(),
              [](const FieldLayout& a, const FieldLayout& b) { return a.number < b.number; });
    return made;
  }

  FieldLayout FieldLocked(const FieldDescriptor& field) {
    FieldLayout layout;
    layout.number = field.number();
    layout.index = field.index();
    layout.repeated = field.is_repeated();
    layout.wire_type =
        WireFormatLite::WireTypeForFieldType(static_cast<WireFormatLite::FieldType>(field.type()));
    layout.limit = FindCountLimit(field.full_name());
    layout.name = field.name();
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      layout.kind = FieldLayout::Kind::kText;
    } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      layout.kind = field.is_map() ? FieldLayout::Kind::kMap : FieldLayout::Kind::kMessage;
      layout.message = &GetLocked(*field.message_type());
      layout.element_bytes = layout.message->object_bytes;
    } else {
      layout.element_bytes = NumberBytes(field.cpp_type());
    }
    return layout;
  }

  std::mutex mutex_;
  std::unordered_map<const Descriptor*, std::unique_ptr<MessageLayout>> layouts_;
};

}  // namespace

const FieldLayout* MessageLayout::Find(int number) const {
  const auto field = std::lower_bound(
      fields.begin(), fields.end(), number,
      [](const FieldLayout& layout, int wanted) { return layout.number < wanted; });
  return field != fields.end() && field->number == number ? &*field : nullptr;
}

const MessageLayout& LayoutOf(const Descriptor& descriptor) {
  static LayoutTable* const table = new LayoutTable;
  return table->Get(descriptor);
}

}  // namespace annulus::server
