#ifndef ANNULUS_CLIENT_CLI_ASK_MAP_REDUCE_H_
#define ANNULUS_CLIENT_CLI_ASK_MAP_REDUCE_H_

#include <set>
#include <string>
#include <vector>

#include "annulus/v1/inference.pb.h"
#include "client/cli/ask/answer.h"
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
      : session_(session), preset_(preset), options_(options) {}

  // Prints the answer. Returns the exit code.
  int Run(const std::vector<std::string>& docs);

 private:
  // A document or a part of one.
  struct Text {
    std::string name;  // on the server; empty if it is too long to store there and must be cut
    std::string title;
    std::string text;  // empty if only the server has it
    int64_t tokens = 0;
  };

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
  int Estimate(const std::string& text, int64_t* tokens);
  int Measure(const std::string& name, Text* text);
  int FindBudget();
  bool Fits(const std::vector<Text>& texts) const;
  int Cut(const std::vector<Text>& texts, std::vector<Text>* parts);
  int AskParts(const std::vector<Text>& parts, const std::string& question,
               std::vector<std::string>* answers);
  int AskAll(const std::vector<Text>& texts, const std::string& question);
  v1::GenerationSpec SpecFor(const std::string& question) const;
  int PrintJoined(const std::vector<std::string>& answers);
  void DeleteOwn();
  int Reduce();

  Session& session_;
  const Preset& preset_;
  MapReduceOptions options_;
  std::vector<Text> texts_;
  v1::Model model_;
  int64_t budget_ = 0;            // the most tokens of documents in one request
  std::set<std::string> before_;  // documents that were on the server before Run
  std::set<std::string> own_;     // parts and notes that Run has stored
  ProvidedDocuments provided_;    // all that Run has stored
};

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CLI_ASK_MAP_REDUCE_H_
