//! Election of the primary: at the start, before the journal is opened.
//!
//! The plant opens its journal to find its last record, and closes it. Then it asks the other plant. If that is the primary, this
//! plant follows it, unless it knows of a later takeover. Otherwise the two are compared: more takeovers win, then more records,
//! then the plant that is to be the primary. A plant without an answer becomes the primary if that was its last role. A former
//! standby waits, because the other plant may have records that its clients have seen.
//!
//! A standby whose journal is not a prefix of the primary's moves it to a subfolder (`aside-1` and so on) and takes all records
//! again.

use std::path::Path;
use std::time::Duration;

use tapeworks_engine::days;
use tapeworks_journal::JournalOptions;
use tapeworks_runtime::world::World;

use super::codec::{Frame, Hello, Parsed, Reason, Role};
use super::net::Net;
use super::state::{self, Remembered};
use super::{Alike, PairError, PairSetting, tip_before};

/// Time limit for an answer of the other plant.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often the other plant is asked.
const EVERY: Duration = Duration::from_millis(200);

/// How long a plant that knows that the other is to be the primary waits for it while it does not answer.
const DEFERENCE: Duration = Duration::from_secs(5);

/// How often a waiting standby reports that it waits.
const REMINDER: Duration = Duration::from_secs(60);

/// The refusal for a plant that wants to follow this one.
const STARTS: &str = "it is not the primary: it starts";

/// This plant's role, as far as an answer determines it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Primary,
    /// The other plant is the primary, or will be.
    Standby,
}

/// Decides which of the two plants is the primary.
pub(super) fn decide(me: &Hello, other: &Hello) -> Verdict {
    let has_more = |hello: &Hello| (hello.epoch, hello.next, hello.wants_primary, hello.instance);
    let is_primary = match other.role {
        // Both went on while they could not reach each other.
        Role::Primary if me.role == Role::Primary => {
            (me.epoch, me.next, me.instance) > (other.epoch, other.next, other.instance)
        }
        Role::Primary => me.epoch > other.epoch,
        // The standby has lost this plant. If this machine crashed, it may have lost records that the standby and clients have.
        Role::Standby if me.epoch >= other.epoch && me.next >= other.next && me.wants_primary => true,
        Role::Starting | Role::Standby => has_more(me) > has_more(other),
    };
    if is_primary { Verdict::Primary } else { Verdict::Standby }
}

/// The outcome of the election.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Agreed {
    pub(crate) role: Role,
    /// Where the journal was moved, if it was moved.
    pub(crate) moved_aside: Option<String>,
}

/// Decides the role of a plant with this journal. `say` receives progress messages, and the wait ends when `is_stopped` returns
/// true.
pub(crate) fn agree<W: World>(
    setting: &PairSetting,
    (folder, options): (&Path, JournalOptions),
    alike: Alike,
    mut say: impl FnMut(&str),
    is_stopped: impl Fn() -> bool,
) -> Result<Agreed, PairError> {
    let remembered = state::read::<W>(folder)?;
    let Remembered { mut epoch, is_primary } =
        remembered.unwrap_or(Remembered { epoch: 0, is_primary: setting.is_primary });
    let (mut is_forced, mut wants_primary) = (setting.is_forced, is_primary || setting.is_forced);
    if let Some(stepped_down) = setting.stepped_down.filter(|stepped_down| *stepped_down >= epoch) {
        (epoch, wants_primary) = (stepped_down, is_forced);
    }
    let mut net = Net::<W>::open(setting, alike)?;
    // This moves an earlier day's journal away, and cuts off a torn end.
    let mut next = days::open_in::<W>(folder, options, W::time_of_day())?.opened.next;
    let mut moved_aside = None;
    let (mut looked, mut said) = (None, None);
    // A primary that called this plant. This plant's own calls to it may get no answer.
    let mut heard = None;
    let (mut deferred, started) = (None, W::instant());
    let instance = instance::<W>();
    let role = loop {
        if is_stopped() {
            return Err(PairError::Stopped);
        }
        let me = Hello {
            instance,
            engine: alike.engine,
            lines: alike.lines,
            epoch,
            role: Role::Starting,
            wants_primary,
            follows: true,
            only_asks: true,
            next,
            tip: tip_before::<W>(folder, next)?.unwrap_or_default(),
        };
        let (mut other, mut primary) = (None, heard.take());
        net.hang_up();
        net.call(&me);
        let began = W::instant();
        let outcome = loop {
            net.turn(Duration::from_millis(20), &Hello { follows: false, ..me });
            primary = primary.or_else(|| primary_that_calls(&net, &me));
            net.refuse_followers(STARTS);
            let answered = answer(&mut net, &mut other);
            if answered != Outcome::None {
                break answered;
            }
            if net.outgoing.is_none() || W::since(began) > PATIENCE || is_stopped() {
                break Outcome::None;
            }
        };
        let verdict = other.map(|other| decide(&me, &other));
        if verdict == Some(Verdict::Standby) {
            deferred = Some(W::instant());
            primary = primary.or_else(|| other.filter(|other| other.role == Role::Primary));
        }
        if let Some(primary) = primary
            && (wants_primary || epoch < primary.epoch)
        {
            // There is a primary, and it may have records that this plant lacks, so this plant waits even without an answer.
            (epoch, wants_primary, is_forced) = (epoch.max(primary.epoch), false, false);
            state::write::<W>(folder, Remembered { epoch, is_primary: false })?;
        }
        match (outcome, verdict) {
            (Outcome::Refused(Reason::Diverged, why), Some(Verdict::Standby)) if next > 0 => {
                let aside = days::move_aside_in::<W>(folder)?;
                let aside = aside.display().to_string();
                say(&format!("the primary at {} says: {why}; the journal is moved to {aside}", setting.peer));
                (next, moved_aside) = (0, Some(aside));
                continue;
            }
            (Outcome::Accepted, Some(Verdict::Standby)) => {
                epoch = epoch.max(other.map_or(0, |other| other.epoch));
                break Role::Standby;
            }
            (
                Outcome::Refused(
                    Reason::Configuration | Reason::Lines | Reason::Itself | Reason::NotKept,
                    said,
                ),
                _,
            ) => return Err(PairError::Refused { peer: setting.peer, said }),
            (_, Some(Verdict::Primary)) => {
                epoch = epoch.max(other.map_or(0, |other| other.epoch));
                break Role::Primary;
            }
            (_, None) if is_forced => break Role::Primary,
            // The other plant may be starting right now, and one that is to be the primary closes its port briefly before it
            // serves.
            (_, None)
                if wants_primary
                    && W::since(started) >= PATIENCE
                    && deferred.is_none_or(|at| W::since(at) >= DEFERENCE) =>
            {
                break Role::Primary;
            }
            (Outcome::Refused(_, why), _) => looked = Some(why),
            _ => {}
        }
        let is_hurried = wants_primary && deferred.is_none();
        if !is_hurried && said.is_none_or(|said| W::since(said) >= REMINDER) {
            said = Some(W::instant());
            let why = looked.take().or_else(|| net.reason.take()).unwrap_or_else(|| "no answer".to_owned());
            say(&format!("this standby waits for the primary at {}: {why}", setting.peer));
        }
        let rested = W::instant();
        while W::since(rested) < EVERY {
            net.turn(EVERY / 4, &Hello { follows: false, ..me });
            heard = heard.or_else(|| primary_that_calls(&net, &me));
            net.refuse_followers(STARTS);
        }
    };
    state::write::<W>(folder, Remembered { epoch, is_primary: role == Role::Primary })?;
    say(&format!(
        "this plant is the {} of its pair, epoch {epoch}; the other is {}",
        role.name(),
        setting.peer
    ));
    Ok(Agreed { role, moved_aside })
}

/// Returns a number that differs at each start.
pub(super) fn instance<W: World>() -> u64 {
    let mut bytes = [0; 8];
    match W::random(&mut bytes) {
        Ok(()) => u64::from_le_bytes(bytes),
        Err(_) => W::time_of_day().0,
    }
}

/// Returns the hello of the other plant, if it has called and takes precedence as the primary.
fn primary_that_calls<W: World>(net: &Net<W>, me: &Hello) -> Option<Hello> {
    let mut hellos = net.incoming.iter().filter_map(|one| one.hello);
    hellos.find(|hello| hello.role == Role::Primary && decide(me, hello) == Verdict::Standby)
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Outcome {
    None,
    Accepted,
    Refused(Reason, String),
}

/// Processes the answers to the call.
fn answer<W: World>(net: &mut Net<W>, other: &mut Option<Hello>) -> Outcome {
    let Some(connection) = &mut net.outgoing else { return Outcome::None };
    loop {
        let taken = match connection.frame() {
            Parsed::Frame(Frame::Welcome(hello), length) => {
                *other = Some(hello);
                length
            }
            Parsed::Frame(Frame::Refused { reason, text }, _) => {
                return Outcome::Refused(reason, text.to_owned());
            }
            Parsed::Frame(Frame::Accepted, _) => return Outcome::Accepted,
            Parsed::Frame(..) => return Outcome::Refused(Reason::Other, "an answer that is none".to_owned()),
            Parsed::Bad(why) => return Outcome::Refused(Reason::Other, why.to_owned()),
            Parsed::Cut => return Outcome::None,
        };
        connection.take(taken);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::atomic::{AtomicBool, Ordering};

    use tapeworks_runtime::world::System;

    use super::super::tests::free_address;
    use super::*;

    /// Regression: after a second without an answer it became the primary of its old epoch, again and again, and served clients.
    #[test]
    fn a_plant_that_knows_a_later_primary_waits_for_it_although_it_does_not_answer() {
        let alike = Alike { engine: 1, lines: 2 };
        for is_called in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let journal = (folder.path(), JournalOptions::default());
            state::write::<System>(folder.path(), Remembered { epoch: 0, is_primary: true }).unwrap();
            let mut setting = PairSetting::new(free_address(), free_address(), true);
            if !is_called {
                let why = super::super::BeginAgain::SteppedDown { peer: setting.peer, epoch: 1 };
                setting.begin_again(&why);
            }
            let is_over = AtomicBool::new(false);
            let mut news = Vec::new();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut hello = Vec::new();
                    let (engine, lines) = (alike.engine, alike.lines);
                    let other = Hello {
                        instance: 7,
                        engine,
                        lines,
                        epoch: 1,
                        role: Role::Primary,
                        ..Hello::default()
                    };
                    Frame::Hello(other).encode(&mut hello);
                    // Its calls arrive, but its answers do not. Without the fix, this plant would be the primary after a second.
                    for _ in 0..30 {
                        if is_called && let Ok(mut one) = std::net::TcpStream::connect(setting.listen) {
                            let _refused = one.write_all(&hello);
                        }
                        std::thread::sleep(EVERY / 2);
                    }
                    is_over.store(true, Ordering::Release);
                });
                let say = |text: &str| news.push(text.to_owned());
                let agreed =
                    agree::<System>(&setting, journal, alike, say, || is_over.load(Ordering::Acquire));
                assert!(matches!(agreed, Err(PairError::Stopped)), "{agreed:?}");
            });
            assert!(news.iter().any(|news| news.contains("this standby waits for the primary")), "{news:?}");
            let remembered = state::read::<System>(folder.path()).unwrap();
            let epoch = u64::from(is_called);
            assert_eq!(remembered, Some(Remembered { epoch, is_primary: !is_called }));
        }
    }

    #[test]
    fn two_plants_decide_alike_whatever_they_were() {
        let roles = [Role::Starting, Role::Primary, Role::Standby];
        for (one_role, other_role) in roles.iter().flat_map(|one| roles.map(|other| (*one, other))) {
            for bits in 0..64u64 {
                let hello = |role, shift: u64| Hello {
                    role,
                    epoch: bits >> shift & 1,
                    next: bits >> (shift + 1) & 1,
                    wants_primary: bits >> (shift + 2) & 1 == 1,
                    instance: shift,
                    ..Hello::default()
                };
                let (one, other) = (hello(one_role, 0), hello(other_role, 3));
                let verdicts = [decide(&one, &other), decide(&other, &one)];
                // Of two starting plants, one is the primary and the other the standby. A primary keeps its role beside a plant in
                // another role, unless that plant knows of a later takeover.
                if one_role == Role::Starting && other_role == Role::Starting {
                    assert_ne!(verdicts[0], verdicts[1], "{one:?} {other:?}");
                }
                if one_role == Role::Primary && other_role == Role::Primary {
                    assert_ne!(verdicts[0], verdicts[1], "{one:?} {other:?}");
                } else if other_role == Role::Primary && other.epoch >= one.epoch {
                    assert_eq!(verdicts[0], Verdict::Standby, "{one:?} {other:?}");
                }
                if other_role != Role::Primary && one.epoch < other.epoch {
                    assert_eq!(verdicts[0], Verdict::Standby, "{one:?} {other:?}");
                }
            }
        }
    }
}
