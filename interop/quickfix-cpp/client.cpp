// A console client of QuickFIX C++ as it comes, with its validation by dictionary. The same commands and output as those of
// examples/quickfixj: a line of standard input is `SENDER_COMP_ID COMMAND`; what is sent and received is printed, `|` for SOH.
//
//   send TYPE TAG=VALUE|TAG=VALUE...   any message
//   logout, logon, drop                drop: the connection is cut, without a Logout
//   numbers                            the session's next numbers: outgoing, incoming
//   quit
//
// g++ -std=c++14 -o client client.cpp -lquickfix -lpthread

#include <algorithm>
#include <iostream>
#include <map>
#include <mutex>
#include <sstream>
#include <string>

#include <quickfix/Application.h>
#include <quickfix/FileStore.h>
#include <quickfix/Message.h>
#include <quickfix/Session.h>
#include <quickfix/SessionSettings.h>
#include <quickfix/ThreadedSocketInitiator.h>

namespace {

// One line at a time: the engine's threads and ours print.
void print(const std::string& what, const std::string& session, std::string text) {
    static std::mutex mutex;
    std::replace(text.begin(), text.end(), '\001', '|');
    const std::lock_guard<std::mutex> guard(mutex);
    std::cout << what << ' ' << session << ' ' << text << std::endl;
}

class Client : public FIX::Application {
public:
    void onCreate(const FIX::SessionID& session) override { sessions[session.getSenderCompID().getValue()] = session; }
    void onLogon(const FIX::SessionID& session) override { tell("logon", session, ""); }
    void onLogout(const FIX::SessionID& session) override { tell("logout", session, ""); }
    void toAdmin(FIX::Message& message, const FIX::SessionID& session) override {
        tell("admin-out", session, message.toString());
    }
    void toApp(FIX::Message& message, const FIX::SessionID& session) throw(FIX::DoNotSend) override {
        tell("out", session, message.toString());
    }
    void fromAdmin(const FIX::Message& message, const FIX::SessionID& session) throw(
        FIX::FieldNotFound, FIX::IncorrectDataFormat, FIX::IncorrectTagValue, FIX::RejectLogon) override {
        tell("admin-in", session, message.toString());
    }
    void fromApp(const FIX::Message& message, const FIX::SessionID& session) throw(
        FIX::FieldNotFound, FIX::IncorrectDataFormat, FIX::IncorrectTagValue, FIX::UnsupportedMessageType) override {
        tell("in", session, message.toString());
    }

    void perform(const std::string& line) {
        std::istringstream words(line);
        std::string name, command, type, fields;
        words >> name >> command >> type >> std::ws;
        std::getline(words, fields);
        const FIX::SessionID& id = sessions.at(name);
        FIX::Session* session = FIX::Session::lookupSession(id);
        if (command == "send") {
            send(id, type, fields);
        } else if (command == "logout") {
            session->logout();
        } else if (command == "logon") {
            session->logon();
        } else if (command == "drop") {
            session->disconnect();
        } else if (command == "numbers") {
            std::ostringstream text;
            text << session->getExpectedSenderNum() << ' ' << session->getExpectedTargetNum();
            print("numbers", name, text.str());
        } else {
            throw std::invalid_argument("no such command");
        }
    }

private:
    static void tell(const char* what, const FIX::SessionID& session, const std::string& text) {
        print(what, session.getSenderCompID().getValue(), text);
    }

    static void send(const FIX::SessionID& id, const std::string& type, const std::string& fields) {
        FIX::Message message;
        message.getHeader().setField(FIX::MsgType(type));
        std::istringstream rest(fields);
        for (std::string field; std::getline(rest, field, '|');) {
            const std::size_t equals = field.find('=');
            message.setField(std::stoi(field.substr(0, equals)), field.substr(equals + 1));
        }
        FIX::Session::sendToTarget(message, id);
    }

    std::map<std::string, FIX::SessionID> sessions;
};

}  // namespace

int main(int count, char** arguments) {
    if (count != 2) {
        std::cerr << "usage: client SETTINGS\n";
        return 2;
    }
    try {
        Client client;
        FIX::SessionSettings settings(arguments[1]);
        FIX::FileStoreFactory stores(settings);
        FIX::ThreadedSocketInitiator initiator(client, stores, settings);
        initiator.start();
        for (std::string line; std::getline(std::cin, line) && line != "quit";) {
            try {
                client.perform(line);
            } catch (const std::exception& error) {
                print("error", "-", line + ": " + error.what());
            }
        }
        initiator.stop();
    } catch (const std::exception& error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
    return 0;
}
