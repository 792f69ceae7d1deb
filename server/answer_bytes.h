#ifndef ANNULUS_SERVER_ANSWER_BYTES_H_
#define ANNULUS_SERVER_ANSWER_BYTES_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "annulus/v1/inference.pb.h"

namespace annulus {

// A GenerateResponse that is encoded while its parts come. One thread carries the answers of all
// clients, so an answer of many megabytes must not be encoded at its end, all at once: each part
// costs what it is long, and the end next to nothing.
class AnswerBytes {
 public:
  // The answer goes on so.
  void Add(const v1::Delta& delta);

  // What the parts take on the wire, at most; in memory kBlockBytes more for each of two arrays.
  size_t size() const { return text_.size() + lists_.size() + kMostHeader; }

  // The whole message. Nothing may be added after it.
  void Finish(const v1::Completion& completion, grpc::ByteBuffer& bytes);

  static constexpr size_t kBlockBytes = size_t{64} << 10;

 private:
  // Bytes in blocks, which neither move nor are copied when they become a message.
  class Blocks {
   public:
    void Append(absl::string_view bytes);
    void MoveTo(std::vector<grpc::Slice>& slices);
    size_t size() const { return size_; }

   private:
    std::vector<grpc::Slice> full_;
    std::string last_;
    size_t size_ = 0;
  };

  static constexpr size_t kMostHeader = 16;  // the tag and length of the text

  Blocks text_;
  Blocks lists_;  // token ids and log probabilities: fields that may go on in further pieces
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_ANSWER_BYTES_H_
