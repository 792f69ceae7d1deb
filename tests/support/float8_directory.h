#ifndef ANNULUS_TESTS_SUPPORT_FLOAT8_DIRECTORY_H_
#define ANNULUS_TESTS_SUPPORT_FLOAT8_DIRECTORY_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/model/files/safetensors.h"
#include "tests/support/temp_directory.h"

namespace annulus::testing {

enum class Float8Scales { kTensor, kRow };

// The float8_e4m3 codes of a matrix and their scales: as many as `groups`, of rows each.
struct Float8Matrix {
  std::string codes;
  std::vector<float> scales;
};

inline Float8Matrix ToFloat8(std::span<const float> weights, int64_t groups) {
  Float8Matrix matrix;
  const size_t size = weights.size() / static_cast<size_t>(groups);
  for (size_t begin = 0; begin < weights.size(); begin += size) {
    float largest = 0;
    for (const float w : weights.subspan(begin, size)) largest = std::max(largest, std::abs(w));
    const float scale = largest / 448;
    for (const float w : weights.subspan(begin, size)) {
      matrix.codes.push_back(static_cast<char>(ToFloat8E4M3(w / scale).bits));
    }
    matrix.scales.push_back(scale);
  }
  return matrix;
}

// Writes config.json and model.safetensors of the checkpoint in `from` as publishers of float8
// checkpoints do: every projection as F8_E4M3 with a `_scale` of one number or one for each row,
// and a static `input_scale` beside it; all else as it was, and so tensors with `but` in their
// names unless it is empty. The files are ours: errors throw.
inline void WriteFloat8Directory(const std::filesystem::path& from, Float8Scales kind,
                                 const TempDirectory& to, const std::string& but = "") {
  const auto source = SafetensorsCheckpoint::Open(from.string()).value();
  nlohmann::json header;
  std::string data;
  const auto add = [&](const std::string& name, const char* type, std::vector<int64_t> shape,
                       const std::string& bytes) {
    const size_t begin = data.size();
    data += bytes;
    header[name] = {
        {"dtype", type}, {"shape", std::move(shape)}, {"data_offsets", {begin, data.size()}}};
  };
  const auto bytes_of = [](const std::vector<float>& values) {
    return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  };
  for (const std::string& name : source->Names()) {
    const TensorInfo info = source->Describe(name).value();
    const bool left = !but.empty() && absl::StrContains(name, but);
    if (left || !absl::EndsWith(name, "_proj.weight")) {
      std::string bytes(info.bytes(), '\0');
      const auto status =
          source->Read(name, std::as_writable_bytes(std::span(bytes.data(), bytes.size())));
      if (!status.ok()) throw std::runtime_error(std::string(status.message()));
      const char* const type = info.dtype == DType::kF32    ? "F32"
                               : info.dtype == DType::kBF16 ? "BF16"
                                                            : "F16";
      add(name, type, info.shape, bytes);
      continue;
    }
    const int64_t rows = info.shape[0];
    const bool single = kind == Float8Scales::kTensor;
    const Float8Matrix matrix = ToFloat8(ReadAsFloat(*source, name).value(), single ? 1 : rows);
    add(name, "F8_E4M3", info.shape, matrix.codes);
    add(name + "_scale", "F32", single ? std::vector<int64_t>{} : std::vector<int64_t>{rows, 1},
        bytes_of(matrix.scales));
    const std::string layer = name.substr(0, name.size() - std::strlen("weight"));
    add(layer + "input_scale", "F32", {}, bytes_of({0.01f}));
  }
  const std::string text = header.dump();
  const uint64_t length = text.size();
  to.Write("model.safetensors",
           absl::StrCat(absl::string_view(reinterpret_cast<const char*>(&length), sizeof(length)),
                        text, data));
  std::filesystem::copy_file(from / "config.json", to.path() / "config.json");
}

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_SUPPORT_FLOAT8_DIRECTORY_H_
