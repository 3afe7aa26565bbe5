package io.tapeworks.client.net;

import java.io.IOException;
import java.net.Socket;
import java.net.UnknownHostException;
import java.time.Duration;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.SSLSocketFactory;

/** Sockets, with TLS and time limits. */
public final class Sockets {
    private Sockets() {}

    /** Shakes hands over a connection, and checks that the certificate is the host's. */
    public static Socket secured(Socket connected, SSLSocketFactory factory, String host, int port) throws IOException {
        SSLSocket secured = (SSLSocket) factory.createSocket(connected, host, port, true);
        SSLParameters parameters = secured.getSSLParameters();
        parameters.setEndpointIdentificationAlgorithm("HTTPS");
        secured.setSSLParameters(parameters);
        secured.startHandshake();
        return secured;
    }

    /** Describes why a connection failed, in one line. */
    public static String cause(Throwable failure) {
        if (failure instanceof UnknownHostException) {
            return "unknown host";
        }
        return failure.getMessage() == null ? failure.toString() : failure.getMessage();
    }

    /** A time limit as sockets take it: 1 ms at least. */
    public static int milliseconds(Duration duration) {
        return (int) Math.max(1, Math.min(Integer.MAX_VALUE, duration.toMillis()));
    }
}
