package io.tapeworks.examples;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.LinkedHashMap;
import java.util.Map;
import quickfix.Application;
import quickfix.DefaultMessageFactory;
import quickfix.FileStoreFactory;
import quickfix.Message;
import quickfix.SLF4JLogFactory;
import quickfix.Session;
import quickfix.SessionID;
import quickfix.SessionSettings;
import quickfix.SocketInitiator;

/**
 * A console client for the order gateway: QuickFIX/J as it comes, with its validation by dictionary.
 *
 * <p>A line of standard input is a command; with several sessions the SenderCompID of one comes first. What is sent and received is
 * printed, `|` for SOH.
 *
 * <pre>
 * buy|sell SYMBOL QUANTITY PRICE     a limit order
 * cancel ID, replace ID QUANTITY PRICE
 * send TYPE TAG=VALUE|TAG=VALUE...   any message
 * logout, logon, drop                drop: the connection is cut, without a Logout
 * numbers                            the session's next numbers: outgoing, incoming
 * quit
 * </pre>
 */
public final class Client implements Application {
    private static final DateTimeFormatter TIME = DateTimeFormatter.ofPattern("yyyyMMdd-HH:mm:ss.SSS");

    private record Order(String symbol, String side) {}

    private final Map<String, SessionID> sessions = new LinkedHashMap<>();
    private final Map<String, Order> orders = new LinkedHashMap<>();
    private final String run = Long.toString(System.currentTimeMillis() / 1_000, 36);

    public static void main(String[] arguments) throws Exception {
        Client client = new Client();
        SessionSettings settings = new SessionSettings(arguments[0]);
        // Its log goes to SLF4J, and from there nowhere: the messages are printed here.
        SocketInitiator initiator = new SocketInitiator(
                client,
                new FileStoreFactory(settings),
                settings,
                new SLF4JLogFactory(settings),
                new DefaultMessageFactory());
        initiator.start();
        for (SessionID session : initiator.getSessions()) {
            client.sessions.put(session.getSenderCompID(), session);
        }
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null && !line.equals("quit"); line = input.readLine()) {
            try {
                client.perform(line.trim());
            } catch (Exception error) {
                print("error", null, line + ": " + error);
            }
        }
        initiator.stop();
    }

    private void perform(String line) throws Exception {
        SessionID named = sessions.get(line.split(" ", 2)[0]);
        SessionID session = named != null ? named : sessions.values().iterator().next();
        String[] words = (named != null ? line.substring(line.indexOf(' ') + 1) : line).split(" ", 4);
        switch (words[0]) {
            case "" -> {}
            case "buy", "sell" -> {
                String id = run + "-" + (orders.size() + 1);
                orders.put(id, new Order(words[1], words[0].equals("buy") ? "1" : "2"));
                send(session, "D", request(id) + "|21=1|40=2|38=" + words[2] + "|44=" + words[3]);
            }
            case "cancel", "replace" -> {
                Order order = orders.get(words[1]);
                String id = run + "-" + (orders.size() + 1);
                orders.put(id, order);
                boolean isCancel = words[0].equals("cancel");
                String terms = isCancel ? "" : "|21=1|40=2|38=" + words[2] + "|44=" + words[3];
                send(session, isCancel ? "F" : "G", request(id) + "|41=" + words[1] + terms);
            }
            case "send" -> send(session, words[1], words[2]);
            case "logout" -> Session.lookupSession(session).logout();
            case "logon" -> Session.lookupSession(session).logon();
            case "drop" -> Session.lookupSession(session).disconnect("asked for", false);
            case "numbers" -> {
                Session state = Session.lookupSession(session);
                print("numbers", session, state.getExpectedSenderNum() + " " + state.getExpectedTargetNum());
            }
            default -> throw new IllegalArgumentException("no such command");
        }
    }

    private String request(String id) {
        String now = TIME.format(LocalDateTime.now(ZoneOffset.UTC));
        return "11=" + id + "|55=" + orders.get(id).symbol + "|54=" + orders.get(id).side + "|60=" + now;
    }

    private static void send(SessionID session, String type, String fields) throws Exception {
        Message message = new Message();
        message.getHeader().setString(35, type);
        for (String field : fields.split("\\|")) {
            int equals = field.indexOf('=');
            message.setString(Integer.parseInt(field.substring(0, equals)), field.substring(equals + 1));
        }
        Session.sendToTarget(message, session);
    }

    /** One line at a time: the engine's threads and ours print. */
    private static void print(String what, SessionID session, String text) {
        String line = what + " " + (session == null ? "-" : session.getSenderCompID()) + " " + text.replace('\001', '|');
        synchronized (System.out) {
            System.out.println(line);
            System.out.flush();
        }
    }

    @Override
    public void onCreate(SessionID session) {}

    @Override
    public void onLogon(SessionID session) {
        print("logon", session, "");
    }

    @Override
    public void onLogout(SessionID session) {
        print("logout", session, "");
    }

    @Override
    public void toAdmin(Message message, SessionID session) {
        print("admin-out", session, message.toString());
    }

    @Override
    public void fromAdmin(Message message, SessionID session) {
        print("admin-in", session, message.toString());
    }

    @Override
    public void toApp(Message message, SessionID session) {
        print("out", session, message.toString());
    }

    @Override
    public void fromApp(Message message, SessionID session) {
        print("in", session, message.toString());
    }
}
