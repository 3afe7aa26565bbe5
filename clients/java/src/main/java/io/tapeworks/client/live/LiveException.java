package io.tapeworks.client.live;

import java.io.IOException;

/** A live session that cannot begin or go on. */
public final class LiveException extends IOException {
    private static final long serialVersionUID = 1L;

    /** What kind of end it is. */
    public enum Reason {
        /** The server refused what was requested: another attempt is refused too. */
        REFUSED,
        /** The server has ended the session. */
        ENDED,
        /** The connection broke, or could not be made, or the server was silent. */
        BROKEN
    }

    private final Reason reason;

    LiveException(String what, Reason reason) {
        super(what);
        this.reason = reason;
    }

    LiveException(String what, Throwable cause) {
        super(what + ": " + (cause instanceof java.net.UnknownHostException ? "the host is not known" : cause.getMessage()), cause);
        this.reason = Reason.BROKEN;
    }

    /** What kind of end it is. */
    public Reason reason() {
        return reason;
    }
}
