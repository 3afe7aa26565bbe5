package io.tapeworks.client.live;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.tapeworks.client.dbn.Mbo;
import io.tapeworks.client.dbn.Records;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLServerSocket;
import javax.net.ssl.TrustManagerFactory;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Sessions over TLS, with certificates that the JDK's keytool makes for each test. */
@Timeout(60)
final class LiveTlsTest {
    private static final char[] PASSWORD = "of the test".toCharArray();

    @TempDir
    Path folder;

    /** A key and its certificate, which is for this name. */
    private KeyStore identity(String name, String subject) throws IOException, GeneralSecurityException, InterruptedException {
        Path file = folder.resolve(name + ".p12");
        String keytool = Path.of(System.getProperty("java.home"), "bin", "keytool").toString();
        Process made = new ProcessBuilder(keytool, "-genkeypair", "-alias", name, "-keyalg", "EC", "-dname", "CN=" + name, "-ext", "san=" + subject,
                        "-storetype", "PKCS12", "-keystore", file.toString(), "-storepass", new String(PASSWORD), "-validity", "2")
                .redirectErrorStream(true)
                .start();
        String printed = new String(made.getInputStream().readAllBytes());
        assertEquals(0, made.waitFor(), printed);
        KeyStore store = KeyStore.getInstance("PKCS12");
        try (InputStream input = Files.newInputStream(file)) {
            store.load(input, PASSWORD);
        }
        return store;
    }

    /** What shows `own` and trusts the certificates of `trusted`; both may be null. */
    private static SSLContext context(KeyStore own, KeyStore trusted) throws GeneralSecurityException, IOException {
        KeyManagerFactory keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        keys.init(own, PASSWORD);
        KeyStore certificates = KeyStore.getInstance("PKCS12");
        certificates.load(null, null);
        if (trusted != null) {
            String alias = trusted.aliases().nextElement();
            certificates.setCertificateEntry(alias, trusted.getCertificate(alias));
        }
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(certificates);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(own == null ? null : keys.getKeyManagers(), trusted == null ? null : trust.getTrustManagers(), null);
        return context;
    }

    private static SSLServerSocket listener(SSLContext context) throws IOException {
        return (SSLServerSocket) context.getServerSocketFactory().createServerSocket(0, 10, InetAddress.getLoopbackAddress());
    }

    private static LiveClientTest.Server server(SSLContext context, boolean asksForCertificate, byte[]... streams) throws IOException {
        SSLServerSocket listener = listener(context);
        listener.setNeedClientAuth(asksForCertificate);
        return new LiveClientTest.Server(listener, streams);
    }

    @Test
    void aSessionOverTlsHasEachRecordOnceThoughItBreaks() throws Exception {
        KeyStore venue = identity("venue", "ip:127.0.0.1");
        byte[] begin = Records.metadata(3);
        LiveClientTest.Server server = server(context(venue, null), false,
                Records.joined(begin, Records.mbo(1, 10), Records.mbo(2, 20)),
                Records.joined(begin, Records.mbo(2, 20), Records.mbo(3, 30)));
        LiveOptions.Builder options =
                server.options("mbo").tls(context(null, venue).getSocketFactory()).reconnects(1, Duration.ofMillis(1));
        LiveClientTest.Orders orders = new LiveClientTest.Orders();
        try (LiveClient client = new LiveClient(options.build())) {
            assertThrows(LiveException.class, () -> client.run(orders));
        }
        assertEquals(List.of(1L, 2L, 3L), orders.seen);
    }

    @Test
    void aServerIsRefusedThatIsAnotherOrUnknown() throws Exception {
        KeyStore venue = identity("venue", "ip:127.0.0.1");
        KeyStore elsewhere = identity("elsewhere", "dns:elsewhere.example");
        for (KeyStore[] shownAndTrusted : new KeyStore[][] {{venue, elsewhere}, {elsewhere, elsewhere}}) {
            LiveClientTest.Server server = server(context(shownAndTrusted[0], null), false, Records.metadata(3));
            LiveOptions.Builder options = server.options("mbo").tls(context(null, shownAndTrusted[1]).getSocketFactory());
            LiveClientTest.Orders orders = new LiveClientTest.Orders();
            try (LiveClient client = new LiveClient(options.build())) {
                assertThrows(IOException.class, () -> client.run(orders));
            }
            assertTrue(server.requests.stream().noneMatch(line -> line.startsWith("auth=")), server.requests.toString());
        }
    }

    @Test
    void anInterruptEndsARunOverTls() throws Exception {
        KeyStore venue = identity("venue", "ip:127.0.0.1");
        CountDownLatch received = new CountDownLatch(1);
        byte[] stream = Records.joined(Records.metadata(3), Records.mbo(1, 10));
        LiveClientTest.Server server = new LiveClientTest.Server(listener(context(venue, null)), stream) {
            @Override
            void served(Socket socket) throws IOException {
                socket.getInputStream().read();
            }
        };
        LiveClientTest.Orders orders = new LiveClientTest.Orders() {
            @Override
            public void onMbo(Mbo mbo, long sequence, boolean endOfBatch) {
                received.countDown();
            }
        };
        LiveOptions options = server.options("mbo").tls(context(null, venue).getSocketFactory()).build();
        assertEquals("returned, interrupted: true", LiveClientTest.interrupted(options, orders, () -> LiveClientTest.await(received)));
    }

    @Test
    void aServerThatAsksForACertificateTakesTheClients() throws Exception {
        KeyStore venue = identity("venue", "ip:127.0.0.1");
        KeyStore client = identity("client", "dns:client.example");
        byte[] stream = Records.joined(Records.metadata(3), Records.mbo(1, 10));
        for (KeyStore own : new KeyStore[] {client, null}) {
            LiveClientTest.Server server = server(context(venue, client), true, stream);
            LiveOptions.Builder options = server.options("mbo").tls(context(own, venue).getSocketFactory());
            LiveClientTest.Orders orders = new LiveClientTest.Orders();
            try (LiveClient session = new LiveClient(options.build())) {
                assertThrows(IOException.class, () -> session.run(orders));
            }
            assertEquals(own == null ? List.of() : List.of(1L), orders.seen);
        }
    }

    @Test
    void aServerWithoutTlsIsGivenUp() throws Exception {
        KeyStore venue = identity("venue", "ip:127.0.0.1");
        LiveClientTest.Server server = new LiveClientTest.Server(Records.metadata(3));
        LiveOptions.Builder options = server.options("mbo")
                .tls(context(null, venue).getSocketFactory())
                .answerTimeout(Duration.ofSeconds(2)).silenceTimeout(Duration.ofSeconds(2));
        try (LiveClient client = new LiveClient(options.build())) {
            assertThrows(IOException.class, () -> client.run(new LiveClientTest.Orders()));
        }
    }
}
