#include "client/many_generations.h"

#include <map>
#include <utility>

#include "google/rpc/status.pb.h"

namespace annulus::client {
namespace {

grpc::Status ToStatus(const google::rpc::Status& failure) {
  return {static_cast<grpc::StatusCode>(failure.code()), failure.message(),
          failure.SerializeAsString()};
}

}  // namespace

grpc::Status StreamMany(Connection& connection, const v1::AskManyRequest& request,
                        ManyObserver& observer) {
  Call call(connection);
  const auto reader = connection.inference().AskMany(call.context(), request);
  std::map<int, Generation> running;
  int ended = 0;
  bool sense = true;
  v1::AskManyResponse response;
  bool more = false;  // the stream goes on although the loop ended
  while ((more = reader->Read(&response))) {
    const int index = response.index();
    sense = index >= 0 && index < request.questions_size();
    if (!sense) break;
    Generation& generation = running[index];
    if (response.has_failure()) {
      generation.status = ToStatus(response.failure());
    } else {
      AddEvent(*response.mutable_event(), observer, generation);
    }
    if (generation.status.ok() && !generation.completion.has_value()) continue;
    ++ended;
    Generation whole = std::move(generation);
    running.erase(index);
    if (!observer.OnEnd(static_cast<size_t>(index), std::move(whole))) break;
  }
  // Cancel only if the stream goes on: otherwise this would replace the server's own status.
  if (more) call.context()->TryCancel();
  while (more) more = reader->Read(&response);
  const grpc::Status status = reader->Finish();
  if (!sense) {
    return {grpc::StatusCode::INTERNAL, "the server sent an answer with an unknown index"};
  }
  if (status.ok() && ended < request.questions_size()) {
    return {grpc::StatusCode::INTERNAL,
            "the server ended the call without answering all questions"};
  }
  return status;
}

}  // namespace annulus::client
