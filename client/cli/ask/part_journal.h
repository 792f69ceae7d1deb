#ifndef ANNULUS_CLIENT_CLI_ASK_PART_JOURNAL_H_
#define ANNULUS_CLIENT_CLI_ASK_PART_JOURNAL_H_

#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "client/cli/session.h"

namespace annulus::client {

// Returns $XDG_CACHE_HOME/annulus/parts.jsonl, else ~/.cache/annulus/parts.jsonl; empty if neither
// variable is set.
std::string PartJournalPath(const Environment& environment);

// Answers to parts of documents, kept in a file that only this user may read, so that a question
// that was interrupted goes on from there. Begins anew when the file has more than 16 MiB. Several
// processes may use one file: each adds whole lines, and lines that are no answers are left out.
// Not thread-safe.
class PartJournal {
 public:
  // Reads the file. An empty path keeps nothing.
  explicit PartJournal(std::string path);

  // The answer that was kept for `key`; null if there is none.
  const std::string* Find(const std::string& key) const;

  // Keeps an answer. Returns false if it cannot be written.
  bool Add(const std::string& key, const std::string& answer);

  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  std::map<std::string, std::string> answers_;
};

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CLI_ASK_PART_JOURNAL_H_
