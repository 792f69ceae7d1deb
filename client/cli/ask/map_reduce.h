#ifndef ANNULUS_CLIENT_CLI_ASK_MAP_REDUCE_H_
#define ANNULUS_CLIENT_CLI_ASK_MAP_REDUCE_H_

#include <string>
#include <vector>

#include "annulus/v1/inference.pb.h"
#include "client/cli/ask/answer.h"
#include "client/cli/ask/document_parts.h"
#include "client/cli/ask/preset.h"
#include "client/cli/input/provide.h"
#include "client/cli/session.h"

namespace annulus::client {

struct MapReduceOptions {
  v1::GenerationSpec spec;  // without input and documents
  AnswerOptions answer;
  DocumentChoice choice;
  int concurrency = 2;
};

// Asks the questions of a preset about documents of any length. If the documents fit the model's
// context, asks one request. Otherwise asks about parts that fit, then about the answers to the
// parts, and so on until the answers fit.
class MapReduce {
 public:
  // `session` and `preset` must outlive this object.
  MapReduce(Session& session, const Preset& preset, const MapReduceOptions& options)
      : session_(session), preset_(preset), options_(options), parts_(session) {}

  // Prints the answer. Returns the exit code.
  int Run(const std::vector<std::string>& docs);

 private:
  using Text = DocumentText;

  // What a DOC stands for.
  struct Source {
    std::string name;  // on the server; empty: a file
    FileText read;
  };

  int ReadDocs(const std::vector<std::string>& docs);
  int ReadDoc(const std::string& doc, std::vector<Source>* sources);
  int CheckCount(const std::vector<Source>& sources);
  int AddFile(const FileText& read, std::vector<Text>* texts);
  int Store(const FileText& read, std::vector<Text>* texts);
  int Measure(const std::string& name, Text* text);
  int FindBudget();
  int CutAndStore(const std::vector<Text>& texts, std::vector<Text>* parts);
  int AskParts(const std::vector<Text>& parts, const std::string& question,
               std::vector<std::string>* answers);
  int AskAll(const std::vector<Text>& texts, const std::string& question);
  v1::GenerationSpec SpecFor(const std::string& question) const;
  int PrintJoined(const std::vector<std::string>& answers);
  int Reduce();

  Session& session_;
  const Preset& preset_;
  MapReduceOptions options_;
  std::vector<Text> texts_;
  v1::Model model_;
  DocumentParts parts_;         // also stores the notes
  ProvidedDocuments provided_;  // the documents that Run has stored whole
};

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CLI_ASK_MAP_REDUCE_H_
