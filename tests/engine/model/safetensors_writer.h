#ifndef ANNULUS_TESTS_ENGINE_MODEL_SAFETENSORS_WRITER_H_
#define ANNULUS_TESTS_ENGINE_MODEL_SAFETENSORS_WRITER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/model/files/tensor_source.h"

namespace annulus::testing {

struct StoredFloats {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;
};

// A file whose header is `header` as given, right or wrong.
inline std::string FileWithLength(absl::string_view header, absl::string_view data) {
  const uint64_t length = header.size();
  return absl::StrCat(absl::string_view(reinterpret_cast<const char*>(&length), 8), header, data);
}

// A well-formed file of F32 tensors.
inline std::string SafetensorsFile(const std::vector<StoredFloats>& tensors) {
  std::string header = "{";
  std::string data;
  for (const StoredFloats& tensor : tensors) {
    const size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(tensor.values.data()),
                tensor.values.size() * sizeof(float));
    absl::StrAppend(&header, header.size() > 1 ? "," : "", "\"", tensor.name,
                    "\":{\"dtype\":\"F32\",\"shape\":", ShapeToString(tensor.shape),
                    ",\"data_offsets\":[", begin, ",", data.size(), "]}");
  }
  return FileWithLength(header + "}", data);
}

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_ENGINE_MODEL_SAFETENSORS_WRITER_H_
