package io.tapeworks.client.live;

import io.tapeworks.client.net.Sockets;
import java.io.IOException;

/** A live session could not begin or was lost. The message names the server and the cause in one line. */
public final class LiveException extends IOException {
    private static final long serialVersionUID = 1L;

    /** The kind of failure. */
    public enum Reason {
        /** The server refused the request and would refuse it again. */
        REFUSED,
        /** The server has ended the session. */
        ENDED,
        /** The connection failed or broke, or the server was silent. */
        BROKEN
    }

    private final Reason reason;

    LiveException(String what, Reason reason) {
        super(what);
        this.reason = reason;
    }

    LiveException(String what, Throwable cause) {
        super(what + ": " + Sockets.cause(cause), cause);
        this.reason = Reason.BROKEN;
    }

    /** Combines two failures into one line. The first decides the reason; the second is suppressed. */
    LiveException(LiveException first, LiveException second) {
        super(first.getMessage() + "; " + second.getMessage(), first);
        this.reason = first.reason;
        addSuppressed(second);
    }

    /** The kind of failure. */
    public Reason reason() {
        return reason;
    }
}
