// Reads FIX messages with QuickFIX: `fix FILE PASSES [DICTIONARY]` prints nanoseconds per message, of the
// fastest pass over the file.
//
// FILE has a message a line. Without a dictionary QuickFIX sees to BodyLength and CheckSum and splits the fields; with one it validates
// each message against it too. The message object is used again and again, as QuickFIX's own sessions do not: they make one each time.

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <quickfix/DataDictionary.h>
#include <quickfix/Message.h>

int main(int count, char **words) {
    if (count < 3) {
        std::cerr << "usage: fix FILE PASSES [DICTIONARY]\n";
        return 2;
    }
    std::ifstream file(words[1]);
    std::vector<std::string> messages;
    for (std::string line; std::getline(file, line);) {
        messages.push_back(line);
    }
    const long passes = std::atol(words[2]);
    std::unique_ptr<FIX::DataDictionary> dictionary;
    if (count > 3) {
        dictionary = std::make_unique<FIX::DataDictionary>(words[3]);
    }
    if (messages.empty() || passes < 1) {
        std::cerr << "error: no messages, or no passes\n";
        return 1;
    }
    try {
        std::size_t bytes = 0;
        FIX::Message message;
        const auto pass = [&] {
            for (const std::string &text : messages) {
                if (dictionary) {
                    message.setString(text, true, dictionary.get());
                    dictionary->validate(message);
                } else {
                    message.setString(text, true);
                }
                bytes += message.getHeader().getField(FIX::FIELD::MsgSeqNum).size();
            }
        };
        double fastest = std::numeric_limits<double>::infinity();
        for (long turn = 0; turn < passes; ++turn) {
            const auto start = std::chrono::steady_clock::now();
            pass();
            const std::chrono::duration<double, std::nano> elapsed = std::chrono::steady_clock::now() - start;
            fastest = std::min(fastest, elapsed.count() / static_cast<double>(messages.size()));
        }
        if (bytes < messages.size()) {
            std::cerr << "error: messages without a sequence number\n";
            return 1;
        }
        std::cout << fastest << "\n";
    } catch (const std::exception &error) {
        std::cerr << "error: " << error.what() << "\n";
        return 1;
    }
    return 0;
}
