//! The bytes between a plant and a request server over TCP.

use tapeworks_session::Request;
use tapeworks_session::requests::{
    LoginFields, RequestLogin, RequestProtocol, RequestServer, RequestStatus, Requester, ServerLimits,
};

use crate::take::Take;

/// The client that requests.
pub(crate) fn login(protocol: RequestProtocol) -> RequestLogin {
    let fields = LoginFields {
        sub_id: "0001",
        user: "FIRM",
        password: "secret",
        source: "FIRM",
        product: 1,
        channel: 2,
    };
    RequestLogin::new(protocol, &fields).expect("it fits")
}

/// A request of the protocol's channel.
pub(crate) fn request(protocol: RequestProtocol, first: u64, count: u16) -> Request {
    Request { session: protocol.transport().session(7), first, count }
}

/// A client of a request server that sends these bytes, in pieces, with requests and time between them: what is kept is bounded, every request gets
/// one response at most, and there is always a next time to look.
pub fn requester(bytes: &[u8]) {
    for protocol in RequestProtocol::ALL {
        let mut input = Take(bytes);
        let mut client = Requester::new(login(protocol));
        let mut now_ns = 0;
        while !input.is_empty() {
            let (step, length) = (input.u8(), usize::from(input.u8()));
            now_ns += u64::from(step >> 2) * 50_000_000;
            match step & 3 {
                0 if client.wants(now_ns) => client.connected(now_ns),
                0 => client.closed(),
                1 => client.request(&request(protocol, u64::from(input.u32()), input.u16()), now_ns),
                _ => client.receive(input.bytes(length), now_ns),
            }
            while let Some(packet) = client.take_answer() {
                assert!(!protocol.answers_to_group() && protocol.transport().is_sound(&packet));
            }
            let sent = client.output().len().min(length);
            client.sent(sent, now_ns);
            client.tick(now_ns);
            if client.over().is_some() {
                assert!(client.output().is_empty());
                client.disconnected(now_ns);
                assert!(!client.wants(now_ns));
            }
            assert!(client.output().len() < 8_192 && client.waiting() <= 1_024);
            let counters = client.counters();
            let answered = counters.responses.iter().sum::<u64>() + counters.unanswered;
            assert!(answered <= counters.sent, "{counters:?}");
            assert!(client.wants(now_ns) || client.deadline_ns() > now_ns, "{client:?}");
        }
    }
}

/// A request server that gets these bytes from a client, in pieces: without a login there is no request, what is kept is bounded, and a client that does
/// nothing is not kept.
pub fn request_server(bytes: &[u8]) {
    let Some((shape, bytes)) = bytes.split_first() else { return };
    for protocol in RequestProtocol::ALL {
        for admitted in [None, Some(login(protocol))] {
            let limits = ServerLimits::of(protocol);
            let mut server = RequestServer::new(protocol, admitted, limits, 0);
            let mut now_ns = 0;
            for piece in bytes.chunks(1 + usize::from(*shape)) {
                now_ns += 1_000_000;
                server.receive(piece, now_ns);
                while let Some(request) = server.next_request() {
                    assert!(server.over().is_some() || server.is_ready());
                    assert!(request.count <= limits.messages);
                    server.answer(RequestStatus::Accepted, now_ns);
                }
                assert!(server.output().len() < 80 << 10);
                let some = server.output().len().min(1 + usize::from(*shape));
                server.sent(some, now_ns);
                server.tick(now_ns);
            }
            for _ in 0..80 {
                now_ns += 1_000_000_000;
                server.tick(now_ns);
            }
            assert!(server.over().is_some(), "a client that does nothing is not kept");
            assert!(server.output().is_empty());
        }
    }
}

/// What a client and a server send each other, as [`requester`] and [`request_server`] take it.
pub(crate) fn seeds(target: &str) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for protocol in RequestProtocol::ALL {
        let mut client = Requester::new(login(protocol));
        let mut server = RequestServer::new(protocol, None, ServerLimits::of(protocol), 0);
        // Connected; then a request, and what the server sends.
        let (mut of_server, mut of_client) = (vec![0, 255], vec![30]);
        client.connected(0);
        for count in [0, 50, 2_000] {
            if count > 0 {
                client.request(&request(protocol, 7, count), 0);
                of_server.extend([1, 255, 7, 0, 0, 0]);
                of_server.extend(count.to_le_bytes());
            }
            let sent = client.output().to_vec();
            client.sent(sent.len(), 0);
            server.receive(&sent, 0);
            of_client.extend(&sent);
            while server.next_request().is_some() {
                server.answer(RequestStatus::Accepted, 0);
            }
            let answers = server.output().to_vec();
            server.sent(answers.len(), 0);
            client.receive(&answers, 0);
            for piece in answers.chunks(200) {
                of_server.extend([2, piece.len() as u8]);
                of_server.extend(piece);
            }
        }
        all.push(if target == "requester" { of_server } else { of_client });
    }
    all
}
