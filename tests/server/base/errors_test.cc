#include "server/base/errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "engine/api.h"
#include "engine/api/field_errors.h"
#include "google/rpc/error_details.pb.h"
#include "server/generation/request_builder.h"
#include "tests/server/test_server.h"

namespace annulus::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Errors, EveryCodeHasAReasonAndTheDomain) {
  for (int code = 1; code <= 16; ++code) {
    const grpc::Status status =
        ToGrpcStatus(absl::Status(static_cast<absl::StatusCode>(code), "why"));
    const ErrorDetails details = Details(status);
    EXPECT_EQ(details.domain, "annulus") << code;
    EXPECT_FALSE(details.reason.empty()) << code;
    v1::ErrorReason reason;
    EXPECT_TRUE(v1::ErrorReason_Parse("ERROR_REASON_" + details.reason, &reason)) << code;
  }
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
}

TEST(Errors, TheEnginesCodesGetTheirReasons) {
  EXPECT_EQ(Details(ToGrpcStatus(absl::OutOfRangeError("x"))).reason, "CONTEXT_TOO_LONG");
  EXPECT_EQ(Details(ToGrpcStatus(absl::ResourceExhaustedError("x"))).reason, "MEMORY_TOO_SMALL");
  const ErrorDetails full =
      Details(ToGrpcStatus(WithRetry(absl::ResourceExhaustedError("x"), 1500)));
  EXPECT_EQ(full.reason, "QUEUE_FULL");
  EXPECT_EQ(full.retry_ms, 1500);
  EXPECT_EQ(Details(ToGrpcStatus(absl::UnavailableError("x"))).reason, "RANK_FAILED");
  for (const auto& [limit, reason] :
       {std::pair("reader", "SLOW_READER"), std::pair("pinned", "QUOTA_EXCEEDED")}) {
    absl::Status status = absl::ResourceExhaustedError("x");
    status.SetPayload(kLimitPayload, absl::Cord(limit));
    EXPECT_EQ(Details(ToGrpcStatus(status)).reason, reason);
  }
}

TEST(Errors, AutomaticRetriesHearWhenOrNever) {
  const absl::Status exhausted = absl::ResourceExhaustedError("x");
  const auto limited = [&](const char* limit) {
    absl::Status status = exhausted;
    status.SetPayload(kLimitPayload, absl::Cord(limit));
    return status;
  };
  const auto with_reason = [](v1::ErrorReason reason) {
    return ReasonError(absl::StatusCode::kResourceExhausted, reason, "x");
  };
  EXPECT_EQ(RetryPushback(WithRetry(exhausted, 750)).value_or(""), "750");
  EXPECT_EQ(RetryPushback(WithRetry(limited("kv_bytes"), 750)).value_or(""), "750");
  EXPECT_EQ(RetryPushback(WithRetry(absl::UnavailableError("x"), 0)).value_or(""), "0");
  for (const absl::Status& lasts :
       {limited("kv_bytes"), with_reason(v1::ERROR_REASON_MESSAGE_TOO_LARGE)}) {
    EXPECT_EQ(RetryPushback(lasts).value_or(""), "-1") << lasts;
  }
  for (const absl::Status& may_pass :
       {absl::OkStatus(), absl::UnavailableError("x"), absl::OutOfRangeError("x"), exhausted,
        limited("reader"), limited("pinned"), with_reason(v1::ERROR_REASON_SLOW_READER),
        with_reason(v1::ERROR_REASON_QUOTA_EXCEEDED),
        with_reason(v1::ERROR_REASON_DOCUMENT_STORE_FULL)}) {
    EXPECT_FALSE(RetryPushback(may_pass).has_value()) << may_pass;
  }
}

TEST(Errors, OurOwnFaultsSayNothing) {
  for (const absl::Status& fault :
       {absl::InternalError("weights at /srv/models/secret"), absl::UnknownError("/srv"),
        absl::DataLossError("/srv"), absl::FailedPreconditionError("/srv"),
        absl::NotFoundError("/srv")}) {
    const grpc::Status status = ToGrpcStatus(fault);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
    EXPECT_THAT(status.error_message(), Not(HasSubstr("srv")));
    EXPECT_THAT(status.error_details(), Not(HasSubstr("srv")));
    EXPECT_EQ(Details(status).reason, "INTERNAL");
  }
}

TEST(Errors, FieldsOfTheEngineArePlacedInTheRequest) {
  v1::GenerationSpec spec;
  spec.mutable_token_ids()->add_ids(-1);
  absl::Status top_p = absl::InvalidArgumentError("x");
  top_p.SetPayload(kFieldPayload, absl::Cord("sampling.top_p"));
  EXPECT_EQ(Details(ToGrpcStatus(PlaceField(spec, top_p))).field, "spec.sampling.top_p");
  absl::Status input = absl::InvalidArgumentError("x");
  input.SetPayload(kFieldPayload, absl::Cord("input"));
  EXPECT_EQ(Details(ToGrpcStatus(PlaceField(spec, input))).field, "spec.token_ids");
}

// Clients that show nothing but the message still say which field it is about.
TEST(Errors, AnErrorThatMovesToAnotherFieldSaysSoInItsMessage) {
  absl::Status status = WithRetry(FieldError("spec.text", "is empty"), 7);
  status = MoveField(status, "questions[3]");
  EXPECT_EQ(status.message(), "questions[3]: is empty");
  const ErrorDetails details = Details(ToGrpcStatus(status));
  EXPECT_EQ(details.field, "questions[3]");
  EXPECT_EQ(details.retry_ms, 7);
  // A message that does not begin with its field stays as it is.
  absl::Status other = absl::InvalidArgumentError("nothing to say");
  other.SetPayload(kFieldPayload, absl::Cord("spec.text"));
  other = MoveField(other, "name");
  EXPECT_EQ(other.message(), "nothing to say");
  EXPECT_EQ(Details(ToGrpcStatus(other)).field, "name");
}

TEST(Errors, AllViolationsOfARequestAreListed) {
  const absl::Status joined =
      JoinFieldErrors({FieldError("spec.priority", "3 is not allowed"),
                       FieldError("spec.sampling.top_p", "must be\nsmaller")});
  const grpc::Status status = ToGrpcStatus(joined);
  EXPECT_EQ(status.error_message(),
            "spec.priority: 3 is not allowed; spec.sampling.top_p: must be smaller");
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(status.error_details()));
  google::rpc::BadRequest bad_request;
  for (const auto& detail : details.details()) detail.UnpackTo(&bad_request);
  ASSERT_EQ(bad_request.field_violations_size(), 2);
  EXPECT_EQ(bad_request.field_violations(1).field(), "spec.sampling.top_p");
  EXPECT_EQ(bad_request.field_violations(1).description(), "spec.sampling.top_p: must be smaller");

  const absl::Status moved =
      MoveFields(joined, [](absl::string_view field) { return absl::StrCat("my ", field); });
  EXPECT_EQ(moved.message(),
            "my spec.priority: 3 is not allowed\nmy spec.sampling.top_p: must be "
            "smaller");
  EXPECT_TRUE(JoinFieldErrors({}).ok());
  const absl::Status other = absl::CancelledError("x");
  EXPECT_EQ(JoinFieldErrors({FieldError("a", "b"), other}), other);
}

TEST(Errors, WhatIsTooLargeNamesAField) {
  const absl::Status large = AnswerTooLargeError(10, 7);
  EXPECT_EQ(Details(ToGrpcStatus(large)).field, "");
  const grpc::Status named = ToGrpcStatus(NameIfTooLarge(large, "spec"));
  EXPECT_EQ(Details(named).field, "spec");
  EXPECT_EQ(Details(named).reason, "ANSWER_TOO_LARGE");
  EXPECT_EQ(Details(named).metadata["needed"], "10");
  EXPECT_EQ(named.error_message(), absl::StrCat("spec: ", std::string(large.message())));
  // What has a field keeps it, and other errors get none.
  const absl::Status sampling = AnswerTooLargeError(10, 7, "spec.sampling");
  EXPECT_EQ(NameIfTooLarge(sampling, "spec"), sampling);
  EXPECT_EQ(Details(ToGrpcStatus(sampling)).field, "spec.sampling");
  EXPECT_EQ(NameIfTooLarge(large, ""), large);
  const absl::Status busy = absl::ResourceExhaustedError("x");
  EXPECT_EQ(NameIfTooLarge(busy, "spec"), busy);
}

TEST(Errors, MessagesNameTheirField) {
  const grpc::Status status = ToGrpcStatus(FieldError("page_size", "-1 is not allowed: 0 to 9"));
  EXPECT_EQ(status.error_message(), "page_size: -1 is not allowed: 0 to 9");
  EXPECT_EQ(Details(status).field, "page_size");
  EXPECT_EQ(ToGrpcStatus(FieldError("", "x")).error_message(), "x");
}

TEST(Errors, MessagesFitIntoTrailersAndArePrintable) {
  const std::string nasty = std::string(100'000, 'x') + "\n\x01\xff";
  const grpc::Status status = ToGrpcStatus(FieldError(nasty, nasty));
  EXPECT_LT(status.error_message().size() + status.error_details().size(), 4096u);
  const grpc::Status control =
      ToGrpcStatus(absl::InvalidArgumentError("a\x01"
                                              "b\xff"
                                              "c\nd"));
  EXPECT_EQ(control.error_message(), "a?b?c d");
  EXPECT_EQ(QuoteName("a\"b\xff"), "\"a\"b?\"");
}

TEST(Errors, ResourcesAndMetadataAreCarried) {
  const ErrorDetails details = Details(
      ToGrpcStatus(ResourceError(absl::StatusCode::kNotFound, v1::ERROR_REASON_DOCUMENT_NOT_FOUND,
                                 "document", "a.txt", "no such document")));
  EXPECT_EQ(details.resource_type, "document");
  EXPECT_EQ(details.resource_name, "a.txt");
  EXPECT_EQ(details.reason, "DOCUMENT_NOT_FOUND");
  const ErrorDetails context = Details(ToGrpcStatus(ContextError("too long", 10, 7)));
  EXPECT_EQ(context.metadata.at("needed"), "10");
  EXPECT_EQ(context.metadata.at("available"), "7");
}

}  // namespace
}  // namespace annulus::server
