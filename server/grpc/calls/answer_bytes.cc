#include "server/grpc/calls/answer_bytes.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace annulus::server {
namespace {

using google::protobuf::internal::WireFormatLite;

// Delta and GenerateResponse have the same field numbers, so encoded parts of one fit the other.
static_assert(int{v1::Delta::kTokenIdsFieldNumber} ==
              int{v1::GenerateResponse::kTokenIdsFieldNumber});
static_assert(int{v1::Delta::kLogprobsFieldNumber} ==
              int{v1::GenerateResponse::kLogprobsFieldNumber});
static_assert(int{v1::Delta::kPromptLogprobsFieldNumber} ==
              int{v1::GenerateResponse::kPromptLogprobsFieldNumber});

// What stands before a text of `size` bytes in the field.
std::string TextHeader(int field, size_t size) {
  std::string header;
  google::protobuf::io::StringOutputStream stream(&header);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.WriteTag(WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED));
  coded.WriteVarint64(size);
  coded.Trim();
  return header;
}

}  // namespace

void AnswerBytes::Blocks::Append(absl::string_view bytes) {
  size_ += bytes.size();
  while (!bytes.empty()) {
    const absl::string_view piece = bytes.substr(0, kBlockBytes - last_.size());
    last_.append(piece.data(), piece.size());
    bytes.remove_prefix(piece.size());
    if (last_.size() < kBlockBytes) return;
    full_.emplace_back(last_);
    last_.clear();
  }
}

void AnswerBytes::Blocks::MoveAsField(int field, std::vector<grpc::Slice>& slices) {
  if (size_ > 0) slices.emplace_back(TextHeader(field, size_));
  MoveTo(slices);
}

void AnswerBytes::Blocks::MoveTo(std::vector<grpc::Slice>& slices) {
  std::move(full_.begin(), full_.end(), std::back_inserter(slices));
  if (!last_.empty()) slices.emplace_back(last_);
  *this = Blocks();
}

void AnswerBytes::Add(const v1::Delta& delta) {
  text_.Append(delta.text());
  reasoning_.Append(delta.reasoning());
  v1::GenerateResponse lists;
  *lists.mutable_token_ids() = delta.token_ids();
  *lists.mutable_logprobs() = delta.logprobs();
  *lists.mutable_prompt_logprobs() = delta.prompt_logprobs();
  lists_.Append(lists.SerializeAsString());
}

void AnswerBytes::Finish(const v1::Completion& completion, grpc::ByteBuffer& bytes) {
  std::vector<grpc::Slice> slices;
  text_.MoveAsField(v1::GenerateResponse::kTextFieldNumber, slices);
  reasoning_.MoveAsField(v1::GenerateResponse::kReasoningFieldNumber, slices);
  lists_.MoveTo(slices);
  v1::GenerateResponse end;
  *end.mutable_completion() = completion;
  slices.emplace_back(end.SerializeAsString());
  bytes = grpc::ByteBuffer(slices.data(), slices.size());
}

}  // namespace annulus::server
