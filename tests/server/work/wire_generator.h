#ifndef ANNULUS_TESTS_SERVER_WORK_WIRE_GENERATOR_H_
#define ANNULUS_TESTS_SERVER_WORK_WIRE_GENERATOR_H_

#include <google/protobuf/descriptor.h>

#include <cstdint>
#include <random>
#include <string>

namespace annulus::server {

// Bytes of a message that take much more memory than they have bytes: empty messages, packed
// numbers, groups and fields that nobody knows, tiny texts, fields that come again and again.
class WireGenerator {
 public:
  explicit WireGenerator(uint64_t seed) : random_(seed) {}

  // Well-formed, of roughly `size` bytes.
  std::string Message(const google::protobuf::Descriptor& type, size_t size);

  // A number below `bound`.
  size_t Below(size_t bound) {
    return std::uniform_int_distribution<size_t>(0, bound - 1)(random_);
  }

 private:
  void Fields(const google::protobuf::Descriptor& type, size_t size, int depth, std::string& out);
  void Known(const google::protobuf::FieldDescriptor& field, size_t size, int depth,
             std::string& out);
  void Packed(const google::protobuf::FieldDescriptor& field, size_t size, std::string& out);
  void Number(const google::protobuf::FieldDescriptor& field, std::string& out);
  void Unknown(size_t size, int depth, std::string& out);
  std::string Text();

  std::mt19937_64 random_;
};

}  // namespace annulus::server

#endif  // ANNULUS_TESTS_SERVER_WORK_WIRE_GENERATOR_H_
