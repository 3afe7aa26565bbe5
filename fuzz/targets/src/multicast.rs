//! The plant's multicast: the bytes of TCP clients, and the packets of a receiver.

use tapeworks_follow::arbitration::{Arbiter, ArbiterOptions, RetransmissionOptions};
use tapeworks_market::Line;
use tapeworks_outputs::multicast::receiver::RecordQueue;
use tapeworks_session::soupbintcp::SoupClient;
use tapeworks_session::{Credentials, Sequence, TransportKind};
use tapeworks_time::Nanos;

/// The first byte says which side, the second the lengths of the pieces.
pub fn multicast(bytes: &[u8]) {
    let Some(([side, shape], bytes)) = bytes.split_first_chunk().map(|(head, rest)| (*head, rest)) else {
        return;
    };
    if side % 2 == 0 {
        client(1 + usize::from(shape), bytes)
    } else {
        receiver(2 + usize::from(shape), bytes)
    }
}

/// A client gets no more than a rejection without a login, every message once with one, and is not kept when it does nothing.
/// Requests for messages are answered with kept messages, or refused.
fn client(piece: usize, bytes: &[u8]) {
    let mut sequence = Sequence::new(*b"2511140000", 4_000);
    (0..200u64).for_each(|number| sequence.put(&number.to_be_bytes()));
    sequence.flush();
    let mut answer = Vec::new();
    match sequence.answer(bytes, &mut answer) {
        Ok(count) => assert!(count > 0 && answer.len() > 20),
        Err(_) => assert!(answer.len() <= 20),
    }
    let known = Credentials { user: "me".to_owned(), password: "secret".to_owned() };
    for credentials in [None, Some(known)] {
        let mut client = SoupClient::new(credentials, 0);
        let (mut now_ns, mut was_admitted) = (0, false);
        for piece in bytes.chunks(piece) {
            now_ns += 1_000_000;
            client.receive(piece, &sequence, now_ns);
            was_admitted |= client.is_admitted();
            client.fill(&sequence, now_ns);
            // The answer to a login at most.
            assert!(was_admitted || client.messages() == 0 && client.output().len() <= 64);
            let some = client.output().len().min(piece.len());
            client.sent(some, now_ns);
            client.tick(now_ns);
        }
        assert!(client.messages() <= 200);
        for _ in 0..40 {
            now_ns += 1_000_000_000;
            client.tick(now_ns);
        }
        assert!(client.over().is_some(), "a client that does nothing is not kept");
    }
}

/// Every message of the packets is a record, or counted as invalid.
fn receiver(piece: usize, bytes: &[u8]) {
    let options = ArbiterOptions {
        retransmission: Some(RetransmissionOptions::default()),
        ..ArbiterOptions::default()
    };
    let mut arbiter = Arbiter::new(TransportKind::MoldUdp64, options);
    let mut queue = RecordQueue::default();
    for (number, packet) in bytes.chunks(piece).enumerate() {
        let now = Nanos(number as u64 * 1_000_000);
        // A header that cannot be read is the arbiter's to count.
        let _malformed = arbiter.packet(Line::A, now, packet, &mut |one| queue.take(one));
        if let Some(unread) = queue.take_unread() {
            arbiter.cannot_read(Line::A, unread);
        }
        arbiter.advance(now, &mut |one| queue.take(one));
        let waiting = queue.len();
        let mut delivered = 0;
        while let Some(record) = queue.pop().expect("a whole record of a known kind is read") {
            let _time = dbn::Record::raw_index_ts(&record);
            delivered += 1;
        }
        assert_eq!(delivered, waiting);
    }
}
