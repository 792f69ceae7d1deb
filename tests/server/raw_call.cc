#include "tests/server/raw_call.h"

#include <grpcpp/support/byte_buffer.h>

#include <vector>

namespace annulus::server {
namespace {

std::string ToString(grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  buffer.Dump(&slices);
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

}  // namespace

RawCall::RawCall(const std::shared_ptr<grpc::Channel>& channel, const std::string& method)
    : stub_(channel), method_(method) {}

RawCall::~RawCall() {
  if (stream_ != nullptr && !finished_) {
    context_.TryCancel();
    Finish();
  }
  queue_.Shutdown();
}

bool RawCall::Step() {
  void* tag = nullptr;
  bool ok = false;
  return queue_.Next(&tag, &ok) && ok;
}

void RawCall::Start() {
  if (stream_ != nullptr) return;
  stream_ = stub_.PrepareCall(&context_, method_, &queue_);
  stream_->StartCall(this);
  Step();
}

bool RawCall::Write(const std::string& bytes) {
  Start();
  const grpc::Slice slice(bytes);
  stream_->Write(grpc::ByteBuffer(&slice, 1), this);
  return Step();
}

void RawCall::WritesDone() {
  Start();
  stream_->WritesDone(this);
  Step();
}

std::optional<std::string> RawCall::Read() {
  Start();
  grpc::ByteBuffer buffer;
  stream_->Read(&buffer, this);
  if (!Step()) return std::nullopt;
  return ToString(buffer);
}

grpc::Status RawCall::Finish() {
  grpc::Status status;
  stream_->Finish(&status, this);
  Step();
  finished_ = true;
  return status;
}

grpc::Status CallRaw(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                     const std::string& bytes, std::string* answer) {
  RawCall call(channel, method);
  call.Write(bytes);
  call.WritesDone();
  while (const auto message = call.Read()) {
    if (answer != nullptr) *answer = *message;
  }
  return call.Finish();
}

}  // namespace annulus::server
