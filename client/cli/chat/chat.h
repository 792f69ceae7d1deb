#ifndef ANNULUS_CLIENT_CLI_CHAT_CHAT_H_
#define ANNULUS_CLIENT_CLI_CHAT_CHAT_H_

#include <string>
#include <vector>

#include "annulus/v1/inference.pb.h"
#include "client/cli/ask/answer.h"
#include "client/cli/chat/conversation.h"
#include "client/cli/chat/line_source.h"
#include "client/cli/input/provide.h"
#include "client/cli/session.h"

namespace annulus::client {

struct ChatOptions {
  v1::GenerationSpec spec;  // without messages and documents
  AnswerOptions answer;
  std::string system;  // system message before the first question; empty: none
  std::vector<std::string> documents;
  DocumentChoice choice;
  std::string folder;      // see ChatFolder; empty: conversations are not saved
  bool continues = false;  // go on with the conversation that was saved last
};

// A conversation about documents. Each line is either a question, which is sent with the whole
// conversation so far, or a command that begins with a slash. On a terminal, the chat continues
// after a failed or interrupted answer, saves the conversation after each, and needs two Ctrl-C at
// the prompt to leave; if lines are piped in, the first failure ends it.
class Chat {
 public:
  // All must outlive the chat.
  Chat(Session& session, const ChatOptions& options, LineSource& lines);

  // Runs until the lines end or /quit. Returns the exit code.
  int Run();

 private:
  struct Command;
  static const std::vector<Command>& Commands();

  void Greet();
  // Reads one entry. A line that ends in a backslash continues on the next line. Returns false at
  // the end of the input.
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
  int Take(const std::string& file);
  int AllowUploads(const std::string& file);
  int ContinueLast();
  void SaveByItself();
  void BeginAnew();

  Session& session_;
  ChatOptions options_;
  LineSource& lines_;
  const bool to_person_;  // a person types the lines on a terminal
  Conversation conversation_;
  std::string saved_as_;  // file that the conversation is saved to by itself; empty: none
  int asked_ = 0;
  int skipped_ = 0;  // number of documents that cannot be read
  bool left_ = false;
  bool interrupted_ = false;  // left by Ctrl-C
};

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CLI_CHAT_CHAT_H_
