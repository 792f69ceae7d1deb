#include "client/generation.h"

#include <utility>

namespace annulus::client {

void AddEvent(v1::StreamGenerateResponse& event, GenerationObserver& observer, Generation& result) {
  switch (event.event_case()) {
    case v1::StreamGenerateResponse::kQueued:
      observer.OnQueued(event.queued());
      break;
    case v1::StreamGenerateResponse::kPromptProgress:
      result.progress = event.prompt_progress();
      observer.OnProgress(event.prompt_progress());
      break;
    case v1::StreamGenerateResponse::kDelta: {
      const v1::Delta& delta = event.delta();
      result.text += delta.text();
      result.token_ids.insert(result.token_ids.end(), delta.token_ids().begin(),
                              delta.token_ids().end());
      result.logprobs.insert(result.logprobs.end(), delta.logprobs().begin(),
                             delta.logprobs().end());
      result.prompt_logprobs.insert(result.prompt_logprobs.end(), delta.prompt_logprobs().begin(),
                                    delta.prompt_logprobs().end());
      observer.OnDelta(delta);
      break;
    }
    case v1::StreamGenerateResponse::kCompletion:
      result.completion = std::move(*event.mutable_completion());
      break;
    case v1::StreamGenerateResponse::EVENT_NOT_SET:
      break;
  }
}

Generation StreamGenerate(Connection& connection, const v1::GenerationSpec& spec,
                          GenerationObserver& observer) {
  Generation result;
  v1::StreamGenerateRequest request;
  *request.mutable_spec() = spec;
  Call call(connection);
  const auto reader = connection.inference().StreamGenerate(call.context(), request);
  v1::StreamGenerateResponse event;
  while (reader->Read(&event)) AddEvent(event, observer, result);
  result.status = reader->Finish();
  if (result.status.ok() && !result.completion.has_value()) {
    result.status = grpc::Status(grpc::StatusCode::INTERNAL,
                                 "the server ended the stream without a final event");
  }
  if (!result.status.ok()) result.completion.reset();
  return result;
}

}  // namespace annulus::client
