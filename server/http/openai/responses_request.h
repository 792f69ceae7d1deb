#ifndef ANNULUS_SERVER_HTTP_OPENAI_RESPONSES_REQUEST_H_
#define ANNULUS_SERVER_HTTP_OPENAI_RESPONSES_REQUEST_H_

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "annulus/v1/inference.pb.h"
#include "server/http/attached_documents.h"
#include "server/http/json/json_reader.h"

namespace annulus::server {

// A part of an item's content, as far as it has been read.
struct ResponsesPart {
  std::string field;  // its path in the request; empty: there is none
  std::string type;
  std::string text;
  std::string file_id;
  std::string file_data;
  std::string filename;
};

// An item of `input`, likewise.
struct ResponsesItem {
  std::string field;
  std::string type;
  std::string role;
  std::string text;
  std::string reasoning;
  std::string call_id;  // of a call or its output
  std::string name;     // of the function
  std::string arguments;
  int parts = 0;
};

// A request of POST /v1/responses.
struct ResponsesRequest {
  v1::GenerationSpec spec;
  std::vector<AttachedDocument> documents = {};
  bool stream = false;
  bool wants_logprobs = false;  // `include` asks for them
  std::optional<int32_t> top_logprobs = {};
  std::vector<std::string> ignored_tools = {};  // types, each once

  // Used while it is read.
  std::string instructions = {};
  std::string reasoning = {};  // for the next message of the assistant
  std::string format = {};     // the type of text.format
  std::string schema = {};
  int items = 0;
  ResponsesItem item = {};
  ResponsesPart part = {};
};

// Reads a body. Checks the fields that this layer alone knows; all others are checked by
// GenerationCall, as over gRPC.
absl::Status ReadResponsesRequest(const std::deque<std::string>& body, ResponsesRequest& request,
                                  CallMemory& memory, const CancelFlag& cancel);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_OPENAI_RESPONSES_REQUEST_H_
