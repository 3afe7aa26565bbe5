import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import quickfix.DataDictionary;
import quickfix.Message;
import quickfix.field.MsgSeqNum;

/**
 * Reads FIX messages with QuickFIX/J: {@code Fix FILE PASSES plain|validated} prints nanoseconds per message, and {@code Fix
 * dictionary FILE} writes the dictionary of FIX 4.4. A file has a message a line. Passes before the counted ones warm the compiler up;
 * of the counted ones the fastest is printed.
 */
public final class Fix {
    private static final int WARM_UP = 12;

    private static InputStream dictionary() {
        return Fix.class.getClassLoader().getResourceAsStream("FIX44.xml");
    }

    private static long pass(List<String> messages, DataDictionary dictionary, boolean validated) throws Exception {
        long length = 0;
        for (String text : messages) {
            Message message = new Message();
            message.fromString(text, dictionary, validated);
            if (validated) {
                dictionary.validate(message);
            }
            length += message.getHeader().getInt(MsgSeqNum.FIELD);
        }
        return length;
    }

    public static void main(String[] words) throws Exception {
        if (words[0].equals("dictionary")) {
            try (InputStream text = dictionary()) {
                Files.write(Path.of(words[1]), text.readAllBytes());
            }
            System.out.println(0);
            return;
        }
        List<String> messages = Files.readAllLines(Path.of(words[0]), StandardCharsets.ISO_8859_1);
        int passes = Integer.parseInt(words[1]);
        boolean validated = words[2].equals("validated");
        DataDictionary dictionary = validated ? new DataDictionary(dictionary()) : null;
        double[] times = new double[passes];
        for (int turn = -WARM_UP; turn < passes; turn++) {
            long start = System.nanoTime();
            long length = pass(messages, dictionary, validated);
            double time = (System.nanoTime() - start) / (double) messages.size();
            if (length < messages.size()) {
                throw new IllegalStateException("messages without a sequence number");
            }
            if (turn >= 0) {
                times[turn] = time;
            }
        }
        Arrays.sort(times);
        System.out.println(times[0]);
    }
}
