#ifndef ANNULUS_TESTS_CLIENT_READ_READ_ONE_H_
#define ANNULUS_TESTS_CLIENT_READ_READ_ONE_H_

#include <string>
#include <utility>
#include <vector>

#include "client/read/read.h"

namespace annulus::testing {

// The only text of a file, or the sentence that says why there is none.
std::string ReadOne(const std::string& title, const std::string& bytes,
                    const client::ReadOptions& options = {});

// What the user is told about it, one sentence a line.
std::string RemarksOn(const std::string& title, const std::string& bytes,
                      const client::ReadOptions& options = {});

// A docx whose body holds these paragraphs, with further parts: name, bytes.
std::string MakeDocx(const std::string& body,
                     const std::vector<std::pair<std::string, std::string>>& parts = {});

// An odt with these automatic styles and this text.
std::string MakeOdt(const std::string& styles, const std::string& text,
                    const std::vector<std::pair<std::string, std::string>>& parts = {});

// An e-book without the entry "mimetype": pages in reading order, by name and bytes. The spine says
// linear="no" of pages whose names begin with "notes".
std::string MakeEpub(const std::vector<std::pair<std::string, std::string>>& pages);

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_CLIENT_READ_READ_ONE_H_
