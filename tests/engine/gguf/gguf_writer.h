#ifndef ANNULUS_TESTS_ENGINE_GGUF_GGUF_WRITER_H_
#define ANNULUS_TESTS_ENGINE_GGUF_GGUF_WRITER_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace annulus::testing {

// Bytes as GGUF stores them.
template <class T>
std::string GgufNumber(T value) {
  std::string bytes(sizeof(value), '\0');
  std::memcpy(bytes.data(), &value, sizeof(value));
  return bytes;
}
inline std::string GgufText(absl::string_view text) {
  return absl::StrCat(GgufNumber<uint64_t>(text.size()), text);
}

// A GGUF file, right or wrong: every part can be given as it is.
class GgufWriter {
 public:
  // Values by the numbers of their types: 4 u32, 6 f32, 7 bool, 8 string, 9 array.
  void Raw(absl::string_view key, uint32_t type, absl::string_view value) {
    values_ += absl::StrCat(GgufText(key), GgufNumber(type), value);
    ++value_count;
  }
  void Set(absl::string_view key, uint32_t value) { Raw(key, 4, GgufNumber(value)); }
  void Set(absl::string_view key, float value) { Raw(key, 6, GgufNumber(value)); }
  void Set(absl::string_view key, bool value) { Raw(key, 7, std::string(1, value ? 1 : 0)); }
  void Set(absl::string_view key, absl::string_view value) { Raw(key, 8, GgufText(value)); }
  void Set(absl::string_view key, const char* value) { Set(key, absl::string_view(value)); }
  void Set(absl::string_view key, const std::vector<std::string>& texts) {
    std::string array = absl::StrCat(GgufNumber<uint32_t>(8), GgufNumber<uint64_t>(texts.size()));
    for (const std::string& text : texts) array += GgufText(text);
    Raw(key, 9, array);
  }
  void Set(absl::string_view key, const std::vector<bool>& flags) {
    std::string array = absl::StrCat(GgufNumber<uint32_t>(7), GgufNumber<uint64_t>(flags.size()));
    for (const bool flag : flags) array += flag ? '\1' : '\0';
    Raw(key, 9, array);
  }
  void Set(absl::string_view key, const std::vector<int32_t>& numbers) {
    SetArray(key, 5, numbers);
  }
  void Set(absl::string_view key, const std::vector<float>& numbers) { SetArray(key, 6, numbers); }

  // `shape` is row-major; `data` goes to the next multiple of the alignment.
  void AddTensor(absl::string_view name, const std::vector<int64_t>& shape, uint32_t type,
                 absl::string_view data) {
    data_.resize((data_.size() + alignment - 1) / alignment * alignment);
    AddTensorAt(name, shape, type, data_.size());
    absl::StrAppend(&data_, data);
  }
  void AddTensorAt(absl::string_view name, const std::vector<int64_t>& shape, uint32_t type,
                   uint64_t offset) {
    tensors_ +=
        absl::StrCat(GgufText(name), GgufNumber<uint32_t>(static_cast<uint32_t>(shape.size())));
    for (size_t i = shape.size(); i-- > 0;) tensors_ += GgufNumber(shape[i]);
    tensors_ += absl::StrCat(GgufNumber(type), GgufNumber(offset));
    ++tensor_count;
  }
  void AddFloats(absl::string_view name, const std::vector<int64_t>& shape,
                 const std::vector<float>& values) {
    AddTensor(name, shape, 0,
              absl::string_view(reinterpret_cast<const char*>(values.data()),
                                values.size() * sizeof(float)));
  }

  std::string Header() const {
    return absl::StrCat("GGUF", GgufNumber(version), GgufNumber(tensor_count),
                        GgufNumber(value_count), values_, tensors_);
  }
  std::string File() const {
    std::string file = Header();
    file.resize((file.size() + alignment - 1) / alignment * alignment);
    return file + data_;
  }

  uint32_t version = 3;
  uint64_t alignment = 32;
  uint64_t tensor_count = 0;
  uint64_t value_count = 0;

 private:
  template <class T>
  void SetArray(absl::string_view key, uint32_t type, const std::vector<T>& numbers) {
    std::string array = absl::StrCat(GgufNumber(type), GgufNumber<uint64_t>(numbers.size()));
    for (const T number : numbers) array += GgufNumber(number);
    Raw(key, 9, array);
  }

  std::string values_;
  std::string tensors_;
  std::string data_;
};

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_ENGINE_GGUF_GGUF_WRITER_H_
