#ifndef ANNULUS_SERVER_GRPC_CALLS_ANSWER_BYTES_H_
#define ANNULUS_SERVER_GRPC_CALLS_ANSWER_BYTES_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "annulus/v1/inference.pb.h"

namespace annulus::server {

// A GenerateResponse that is encoded part by part, as the parts arrive. One thread delivers the
// answers of all clients, and encoding an answer of many megabytes all at once would hold the
// others up. So each part is encoded when it arrives, and the end costs next to nothing.
class AnswerBytes {
 public:
  // Appends a part of the answer.
  void Add(const v1::Delta& delta);

  // Upper bound of the parts' size on the wire. They take up to 3 * kBlockBytes more of memory.
  size_t size() const { return text_.size() + reasoning_.size() + lists_.size() + 2 * kMostHeader; }

  // Writes the whole message to `bytes`. Add must not be called afterwards.
  void Finish(const v1::Completion& completion, grpc::ByteBuffer& bytes);

  static constexpr size_t kBlockBytes = size_t{64} << 10;

 private:
  // Bytes in blocks of fixed size. Full blocks become part of the message without a copy.
  class Blocks {
   public:
    void Append(absl::string_view bytes);
    void MoveTo(std::vector<grpc::Slice>& slices);
    // The same, as a field of text; nothing if it is empty.
    void MoveAsField(int field, std::vector<grpc::Slice>& slices);
    size_t size() const { return size_; }

   private:
    std::vector<grpc::Slice> full_;
    std::string last_;
    size_t size_ = 0;
  };

  static constexpr size_t kMostHeader = 16;  // the tag and length of a text

  Blocks text_;
  Blocks reasoning_;
  Blocks lists_;  // token ids and log probabilities: repeated fields may be encoded in pieces
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GRPC_CALLS_ANSWER_BYTES_H_
