#ifndef ANNULUS_CLIENT_CLI_COMMANDS_DOCUMENT_PUT_H_
#define ANNULUS_CLIENT_CLI_COMMANDS_DOCUMENT_PUT_H_

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "annulus/v1/document.pb.h"
#include "client/cli/input/provide.h"
#include "client/cli/session.h"

namespace annulus::client {

// What the command line says to the commands about documents.
struct DocumentOptions {
  std::vector<std::string> arguments;  // files, or names and patterns of names
  std::string name;                    // the document's name on the server
  std::optional<std::string> title;
  std::string output;  // the file that gets the text
  bool force = false;
  bool prefill = false;
  bool pin = false;
  std::optional<double> ttl;  // seconds
  std::string model;
  std::string system;
  ReadOptions read;
};

// A document that was uploaded.
struct PutDocument {
  v1::Document document;
  std::optional<v1::Prefilled> prefilled;
};

nlohmann::ordered_json DocumentJson(const v1::Document& document,
                                    const std::optional<v1::Prefilled>& prefilled);

// Print one document, or a table of several; they return the exit code.
int PrintDocument(Session& session, const v1::Document& document,
                  const std::optional<v1::Prefilled>& prefilled = std::nullopt);
int PrintDocuments(Session& session, const std::vector<PutDocument>& documents);

// `documents put`: uploads files and, if asked to, has the server read them. Returns the exit code.
int RunPut(Session& session, const DocumentOptions& options);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CLI_COMMANDS_DOCUMENT_PUT_H_
