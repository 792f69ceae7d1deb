#ifndef ANNULUS_TESTS_SERVER_RAW_CALL_H_
#define ANNULUS_TESTS_SERVER_RAW_CALL_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

#include <memory>
#include <optional>
#include <string>

namespace annulus::server {

// One call to any method, with bytes in place of messages, so that tests can send what no client
// library would. Each step blocks until it is done.
class RawCall {
 public:
  // `method` is "/package.Service/Method".
  RawCall(const std::shared_ptr<grpc::Channel>& channel, const std::string& method);
  ~RawCall();

  grpc::ClientContext& context() { return context_; }

  // Begins the call; Write and Read do so when it has not begun.
  void Start();
  bool Write(const std::string& bytes);
  void WritesDone();
  std::optional<std::string> Read();  // nothing at the end of the stream
  grpc::Status Finish();

 private:
  bool Step();  // waits for the one operation under way

  grpc::GenericStub stub_;
  const std::string method_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  bool finished_ = false;
};

// Sends one message and returns the status, and the answer if there is one.
grpc::Status CallRaw(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                     const std::string& bytes, std::string* answer = nullptr);

}  // namespace annulus::server

#endif  // ANNULUS_TESTS_SERVER_RAW_CALL_H_
