#ifndef ANNULUS_CLIENT_CLI_CHAT_H_
#define ANNULUS_CLIENT_CLI_CHAT_H_

#include <string>
#include <vector>

#include "annulus/v1/inference.pb.h"
#include "client/cli/answer.h"
#include "client/cli/conversation.h"
#include "client/cli/inputs.h"
#include "client/cli/line_source.h"
#include "client/cli/session.h"

namespace annulus {

struct ChatOptions {
  v1::GenerationSpec spec;  // without messages and documents
  AnswerOptions answer;
  std::string system;  // message before the first question
  std::vector<std::string> documents;
  DocumentChoice choice;
};

// Questions and answers over documents. Each line is a question, which goes to the server with all
// that was said before, or a command that begins with a slash. A person goes on after a failed or
// interrupted answer; of piped lines the first failure is the end.
class Chat {
 public:
  // All must outlive the chat.
  Chat(Session& session, const ChatOptions& options, LineSource& lines);

  // Until the lines end. Returns the exit code.
  int Run();

 private:
  struct Command;
  static const std::vector<Command>& Commands();

  void Greet();
  // A line that ends in a backslash goes on in the next one. False at the end of all lines.
  bool NextEntry(std::string* entry);
  int Obey(const std::string& entry);
  int Ask(const std::string& question);

  int Help(const std::string& argument);
  int Docs(const std::string& argument);
  int Save(const std::string& file);
  int Load(const std::string& file);
  int Clear(const std::string& argument);
  int Quit(const std::string& argument);

  int AddDocuments(const std::vector<std::string>& docs);
  void BeginAnew();

  Session& session_;
  ChatOptions options_;
  LineSource& lines_;
  const bool to_person_;  // somebody types
  Conversation conversation_;
  int asked_ = 0;
  int skipped_ = 0;  // documents that cannot be read
  bool left_ = false;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_CHAT_H_
