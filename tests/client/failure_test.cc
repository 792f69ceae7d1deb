#include "client/failure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "google/rpc/error_details.pb.h"
#include "tests/client/fake_server.h"

namespace annulus::client {
namespace {

using testing::MakeFailure;

TEST(ExitCode, Is64PlusTheGrpcCode) {
  EXPECT_EQ(ExitCode(grpc::Status::OK), 0);
  EXPECT_EQ(ExitCode(grpc::Status(grpc::StatusCode::CANCELLED, "")), 65);
  EXPECT_EQ(ExitCode(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "")), 67);
  EXPECT_EQ(ExitCode(grpc::Status(grpc::StatusCode::UNAUTHENTICATED, "")), 80);
}

TEST(CodeName, KnowsEveryCode) {
  EXPECT_EQ(CodeName(grpc::StatusCode::OK), "OK");
  EXPECT_EQ(CodeName(grpc::StatusCode::RESOURCE_EXHAUSTED), "RESOURCE_EXHAUSTED");
  EXPECT_EQ(CodeName(grpc::StatusCode::UNAUTHENTICATED), "UNAUTHENTICATED");
  EXPECT_EQ(CodeName(static_cast<grpc::StatusCode>(99)), "UNKNOWN");
}

TEST(DescribeFailure, NamesFlagsOfWrongFields) {
  google::rpc::BadRequest bad;
  auto* violation = bad.add_field_violations();
  violation->set_field("spec.sampling.top_p");
  violation->set_description("3 is not in (0, 1]");
  violation = bad.add_field_violations();
  violation->set_field("spec.text");
  violation->set_description("is empty");
  const auto status = MakeFailure(grpc::StatusCode::INVALID_ARGUMENT, "2 fields are wrong", {&bad});
  EXPECT_EQ(DescribeFailure(status, "host:1"),
            "INVALID_ARGUMENT: 2 fields are wrong\n"
            "  field: --top-p: 3 is not in (0, 1]\n"
            "  field: text: is empty");
}

TEST(DescribeFailure, PrintsReasonResourceAndRetry) {
  google::rpc::ErrorInfo info;
  info.set_reason("QUEUE_FULL");
  (*info.mutable_metadata())["waiting"] = "256";
  google::rpc::ResourceInfo resource;
  resource.set_resource_type("model");
  resource.set_resource_name("tiny");
  resource.set_description("busy");
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(1);
  retry.mutable_retry_delay()->set_nanos(500'000'000);
  const auto status = MakeFailure(grpc::StatusCode::RESOURCE_EXHAUSTED, "too many requests wait",
                                  {&info, &resource, &retry});
  EXPECT_EQ(DescribeFailure(status, "host:1"),
            "RESOURCE_EXHAUSTED: too many requests wait\n"
            "  reason: QUEUE_FULL, waiting 256\n"
            "  model: tiny (busy)\n"
            "  try again in 1.5 s");
  EXPECT_EQ(FailureReason(status), "QUEUE_FULL");
}

TEST(DescribeFailure, NamesWhatReadsTooLongDocuments) {
  google::rpc::ErrorInfo info;
  info.set_reason("CONTEXT_TOO_LONG");
  EXPECT_EQ(
      DescribeFailure(MakeFailure(grpc::StatusCode::OUT_OF_RANGE, "too long", {&info}), "host:1"),
      "OUT_OF_RANGE: too long\n"
      "  reason: CONTEXT_TOO_LONG\n"
      "  'annulus ask', 'summarize' and 'extract' read documents of any length, in parts");
}

TEST(DescribeFailure, SaysNothingTwice) {
  google::rpc::BadRequest bad;
  bad.add_field_violations()->set_field("spec.sampling.top_p");
  bad.mutable_field_violations(0)->set_description("top_p is 3");
  google::rpc::ResourceInfo resource;
  resource.set_resource_type("document");
  resource.set_resource_name("x");
  resource.set_description("top_p is 3");
  const auto status = MakeFailure(grpc::StatusCode::INVALID_ARGUMENT, "top_p is 3; allowed: (0, 1]",
                                  {&bad, &resource});
  EXPECT_EQ(DescribeFailure(status, "host:1"),
            "INVALID_ARGUMENT: top_p is 3; allowed: (0, 1]\n  field: --top-p\n  document: x");
}

// Messages are those of gRPC 1.51.
TEST(DescribeFailure, AdvisesWhenTheServerCannotBeReached) {
  const std::string failed = "failed to connect to all addresses; last error: ";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {failed + "UNKNOWN: ipv4:127.0.0.1:1: Failed to connect to remote host: Connection refused",
       "Is annulusd running at host:1? Give another address with --server HOST:PORT."},
      {failed + "UNKNOWN: ipv4:127.0.0.1:1: Ssl handshake failed: SSL_ERROR_SSL: "
                "error:0A00010B:SSL routines::wrong version number",
       "annulusd at host:1 speaks without TLS: leave out the --tls flags."},
      {failed + "UNKNOWN: ipv4:127.0.0.1:1: Ssl handshake failed: SSL_ERROR_SSL: "
                "error:0A000086:SSL routines::certificate verify failed",
       "The certificate of host:1 is not signed by an authority that this machine trusts: name the "
       "authority's certificate with --tls-ca FILE."},
      {failed + "UNKNOWN: ipv4:127.0.0.1:1: Peer name host is not in peer certificate",
       "The certificate of host:1 is for another host: give that host's name with "
       "--tls-server-name NAME."},
      {failed + "UNAVAILABLE: ipv4:127.0.0.1:1: Failed parsing HTTP/2",
       "The service at host:1 is not the gRPC API of annulusd: give its --listen address with "
       "--server HOST:PORT, not its --metrics address."},
      {failed + "INTERNAL: ipv4:127.0.0.1:1: Trying to connect an http1.x server",
       "The service at host:1 is not the gRPC API of annulusd: give its --listen address with "
       "--server HOST:PORT, not its --metrics address."},
      {failed + "UNAVAILABLE: ipv4:127.0.0.1:1: Socket closed",
       "host:1 closed the connection at once. If it uses TLS, add --tls, or --tls-ca FILE."},
      {failed + "UNKNOWN: ipv4:127.0.0.1:1: connection attempt timed out before receiving SETTINGS "
                "frame",
       "host:1 accepts connections but does not answer: annulusd there is stopped or hangs, or "
       "another program listens. Its log says more; --connect-timeout SECONDS waits longer."},
      {failed + "UNKNOWN: ipv4:127.0.0.1:1: Ssl handshake failed: Handshake read failed",
       "host:1 ended the TLS handshake, or never answered it. If annulusd there speaks without "
       "TLS, leave out the --tls flags; else it is stopped or hangs, or another program listens. "
       "Its log says more; --connect-timeout SECONDS waits longer."},
      {failed + "UNKNOWN: ipv4:10.0.0.1:1: connect() timed out",
       "Nothing answers at host:1: the host is down, or a firewall blocks the connection. Give "
       "another "
       "address with --server HOST:PORT, or wait longer with --connect-timeout SECONDS."},
      {"DNS resolution failed for host:1: C-ares status is not ARES_SUCCESS",
       "There is no such host. Give another address with --server HOST:PORT."},
      {"Socket closed",
       "The connection to host:1 was lost. Is annulusd still running there? Its log says why it "
       "ended."}};
  for (const auto& [message, advice] : cases) {
    const grpc::Status status(grpc::StatusCode::UNAVAILABLE, message);
    EXPECT_EQ(DescribeFailure(status, "host:1"), "UNAVAILABLE: " + message + "\n  " + advice);
    EXPECT_EQ(FailureReason(status), "");
  }
}

TEST(DescribeFailure, TellsAWebServerFromAnnulusd) {
  const grpc::Status status(grpc::StatusCode::UNIMPLEMENTED,
                            "Received http2 header with status: 404");
  EXPECT_EQ(DescribeFailure(status, "host:1"),
            "UNIMPLEMENTED: Received http2 header with status: 404\n  The service at host:1 is not "
            "the gRPC API of annulusd: give its --listen address with --server HOST:PORT, not its "
            "--metrics address.");
}

TEST(DescribeFailure, SaysThatAnOlderServerLacksTheCall) {
  const grpc::Status status(grpc::StatusCode::UNIMPLEMENTED, "");
  EXPECT_THAT(
      DescribeFailure(status, "host:1"),
      ::testing::StartsWith("UNIMPLEMENTED: the annulusd at host:1 does not have this call"));
}

TEST(DescribeFailure, BearsGarbageInTheDetails) {
  const grpc::Status status(grpc::StatusCode::INTERNAL, "", "\xFF\xFF not a message");
  EXPECT_EQ(DescribeFailure(status, "host:1"), "INTERNAL: the server gave no reason");
}

}  // namespace
}  // namespace annulus::client
