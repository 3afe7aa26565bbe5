//! Access control of the page.
//!
//! On loopback without a token, only users of this machine have access. A foreign page in a local browser can reach the port
//! too, through a name that resolves to this machine (DNS rebinding), so `Host` must be a loopback name. Otherwise a request
//! needs the token, as `Authorization: Bearer` or as a cookie from the form at `/login`. Each login has its own cookie, valid
//! until `/logout`, for a month, or until the process ends. Requests that a browser makes on behalf of another site (`Origin`)
//! are always refused.
//!
//! Wrong tokens cost time. After [`FREE_GUESSES`] an address is refused for one second, and the time doubles with each further
//! guess, up to a minute. The right token is always accepted immediately.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Extension;
use axum::extract::{Form, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use tapeworks_runtime::secrets::Secret;

use super::{Peer, Server, page};

/// Paths that need no token.
const OPEN: [&str; 4] = ["/health", "/login", "/style.css", "/icon.svg"];

/// Delay before the answer to a wrong token.
const PENALTY: Duration = Duration::from_millis(500);

/// Wrong tokens from an address before it must wait.
const FREE_GUESSES: u32 = 5;

/// The longest wait of an address, and the time without a wrong token after which the address is forgotten.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Maximum number of remembered addresses that sent wrong tokens.
const MOST_GUESSERS: usize = 4_096;

/// Maximum number of remembered logins; a new login evicts the oldest.
const MOST_LOGINS: usize = 256;

/// One month, in s.
const COOKIE_SECONDS: u32 = 30 * 86_400;

/// Allows only this server's resources; no inline scripts, no frames.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

const HEADERS: [(HeaderName, &str); 5] = [
    (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    // Not `no-referrer`, which makes browsers send forms with `Origin: null`.
    (header::REFERRER_POLICY, "same-origin"),
    (header::CACHE_CONTROL, "no-cache"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Decides which requests have access.
pub(super) struct Access {
    /// The accepted values of `Host`, if only loopback names are accepted.
    hosts: Option<Vec<String>>,
    token: Option<Secret>,
    /// The hash of the token that the current logins used.
    given_for: Mutex<[u8; 32]>,
    cookie: String,
    /// Suffix of each cookie: with TLS, browsers must return the cookie over TLS only.
    secure: &'static str,
    /// The hashes of issued cookies, with their expiry.
    logins: Mutex<VecDeque<([u8; 32], Instant)>>,
    guessers: Mutex<HashMap<IpAddr, Guesser>>,
}

/// An address that sent wrong tokens.
#[derive(Clone, Copy, Debug)]
struct Guesser {
    guesses: u32,
    /// When the last wrong token was sent.
    last: Instant,
}

impl Guesser {
    /// Returns the time until which the address is refused.
    fn until(&self) -> Instant {
        let doublings = self.guesses.saturating_sub(FREE_GUESSES + 1).min(16);
        let wait =
            if self.guesses > FREE_GUESSES { Duration::from_secs(1 << doublings) } else { Duration::ZERO };
        self.last + wait.min(LONGEST_WAIT)
    }
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

/// Why a request is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Refusal {
    Host,
    Origin,
    /// The token is missing.
    Token,
    /// The token is wrong.
    Guess,
    /// Too many wrong tokens: the address must wait this many seconds.
    Wait(u64),
}

fn hash(what: &str, text: &str) -> [u8; 32] {
    Sha256::new().chain_update(what).chain_update([0]).chain_update(text).finalize().into()
}

impl Access {
    pub(super) fn new(address: SocketAddr, token: Option<Secret>, is_tls: bool) -> Self {
        let port = address.port();
        let usual_port = if is_tls { 443 } else { 80 };
        let hosts = address.ip().is_loopback().then(|| {
            let names = ["localhost", "127.0.0.1", "[::1]"];
            let mut hosts: Vec<String> = names.iter().map(|name| format!("{name}:{port}")).collect();
            hosts.push(address.to_string());
            if port == usual_port {
                hosts.extend(names.map(str::to_owned));
            }
            hosts
        });
        let given_for =
            Mutex::new(token.as_ref().map(|token| hash("token", &token.get())).unwrap_or_default());
        let cookie = format!("tapeworks_{port}");
        let secure = if is_tls { "; Secure" } else { "" };
        Self { hosts, token, given_for, cookie, secure, logins: Mutex::default(), guessers: Mutex::default() }
    }

    /// Returns whether a token is required.
    pub(super) const fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// Returns whether `shown` is the token, in constant time.
    fn is_token(&self, shown: &str) -> bool {
        self.token
            .as_ref()
            .is_some_and(|token| hash("token", shown).ct_eq(&hash("token", &token.get())).into())
    }

    /// Ends all logins that used a token that has since been replaced.
    fn end_logins_of_old_token(&self) {
        let Some(token) = self.token.as_ref().filter(|token| token.files().is_some()) else { return };
        let now = hash("token", &token.get());
        let mut given_for = self.given_for.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *given_for, now) != now {
            self.logins.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }

    /// Issues a cookie to a client that presented the token. Returns `None` if the system has no randomness.
    fn log_in(&self) -> Option<String> {
        self.end_logins_of_old_token();
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).ok()?;
        let cookie = hex::encode(secret);
        let mut logins = self.logins.lock().unwrap_or_else(PoisonError::into_inner);
        logins.retain(|(_, until)| *until > Instant::now());
        if logins.len() == MOST_LOGINS {
            logins.pop_front();
        }
        let until = Instant::now() + Duration::from_secs(COOKIE_SECONDS.into());
        logins.push_back((hash("cookie", &cookie), until));
        Some(cookie)
    }

    /// Revokes the cookies of a request.
    fn log_out(&self, headers: &HeaderMap) {
        let gone: Vec<[u8; 32]> = self.cookies(headers).collect();
        let mut logins = self.logins.lock().unwrap_or_else(PoisonError::into_inner);
        logins.retain(|(login, _)| !gone.contains(login));
    }

    /// Returns the hashes of our cookies in a request.
    fn cookies(&self, headers: &HeaderMap) -> impl Iterator<Item = [u8; 32]> {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
        let pairs = cookies.flat_map(|cookies| cookies.split(';'));
        let named = pairs.filter_map(|cookie| cookie.trim().split_once('='));
        named.filter(|(name, _)| *name == self.cookie).map(|(_, value)| hash("cookie", value))
    }

    fn has_cookie(&self, headers: &HeaderMap) -> bool {
        self.end_logins_of_old_token();
        let logins = self.logins.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        self.cookies(headers).any(|shown| logins.iter().any(|(login, until)| *login == shown && *until > now))
    }

    /// Returns the number of seconds that the address must wait before its next token is checked.
    fn wait(&self, address: IpAddr, now: Instant) -> u64 {
        let guessers = self.guessers.lock().unwrap_or_else(PoisonError::into_inner);
        let until = guessers.get(&address).map_or(now, Guesser::until);
        until.saturating_duration_since(now).as_millis().div_ceil(1_000) as u64
    }

    /// Records a wrong token from the address.
    fn guessed(&self, address: IpAddr, now: Instant) {
        let mut guessers = self.guessers.lock().unwrap_or_else(PoisonError::into_inner);
        if guessers.len() >= MOST_GUESSERS && !guessers.contains_key(&address) {
            guessers.retain(|_, guesser| now.saturating_duration_since(guesser.last) < LONGEST_WAIT);
            if guessers.len() >= MOST_GUESSERS {
                // More addresses are guessing than can be remembered; each answer is still delayed.
                return;
            }
        }
        let guesser = guessers.entry(address).or_insert(Guesser { guesses: 0, last: now });
        if now.saturating_duration_since(guesser.until()) >= LONGEST_WAIT {
            guesser.guesses = 0;
        }
        (guesser.guesses, guesser.last) = (guesser.guesses.saturating_add(1), now);
    }

    /// Checks a token. The right token never waits: behind a proxy all clients share one address, and one guesser would lock
    /// everyone out.
    fn check(&self, shown: &str, address: IpAddr) -> Result<(), Refusal> {
        let now = Instant::now();
        if self.is_token(shown) {
            return Ok(());
        }
        match self.wait(address, now) {
            0 => {
                self.guessed(address, now);
                Err(Refusal::Guess)
            }
            seconds => Err(Refusal::Wait(seconds)),
        }
    }

    fn judge(&self, path: &str, headers: &HeaderMap, address: IpAddr) -> Result<(), Refusal> {
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let is_ours = |host: &str| {
            let hosts = self.hosts.as_ref();
            hosts.is_none_or(|hosts| hosts.iter().any(|ours| ours.eq_ignore_ascii_case(host)))
        };
        let host = host.filter(|host| is_ours(host)).ok_or(Refusal::Host)?;
        if let Some(origin) = headers.get(header::ORIGIN) {
            let origin = origin.to_str().unwrap_or_default();
            let from = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
            if !from.is_some_and(|from| from.eq_ignore_ascii_case(host)) {
                return Err(Refusal::Origin);
            }
        }
        let is_open = self.token.is_none() || OPEN.contains(&path);
        if is_open || self.has_cookie(headers) {
            return Ok(());
        }
        let shown = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        match shown.and_then(bearer) {
            Some(token) => self.check(token, address),
            // Any other scheme also counts as a guess.
            None if headers.contains_key(header::AUTHORIZATION) => self.check("", address),
            None => Err(Refusal::Token),
        }
    }
}

/// Returns the token of `Bearer TOKEN`. The scheme is case-insensitive (RFC 9110, section 11.1).
fn bearer(authorization: &str) -> Option<&str> {
    let (scheme, token) = authorization.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Checks every request before its handler runs.
pub(super) async fn guard(
    State(server): State<Arc<Server>>,
    Extension(peer): Extension<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path();
    let mut response = match server.access.judge(path, request.headers(), peer.0.ip()) {
        Ok(()) => {
            server.counters.requests.add();
            next.run(request).await
        }
        Err(Refusal::Host) => {
            server.counters.refused_host.add();
            server.refuse(peer, "a Host header of another server");
            let why = "refused: the Host header is none of this server's names (localhost, 127.0.0.1, [::1], with the port)\n";
            (StatusCode::MISDIRECTED_REQUEST, why).into_response()
        }
        Err(Refusal::Origin) => {
            server.counters.refused_origin.add();
            server.refuse(peer, "a request from another site's page");
            (StatusCode::FORBIDDEN, "refused: the request comes from another site's page\n").into_response()
        }
        Err(Refusal::Token) if path == "/" => Redirect::to("/login").into_response(),
        Err(refusal @ (Refusal::Token | Refusal::Guess)) => {
            server.counters.refused_token.add();
            server.refuse(peer, "no token, or a wrong one");
            if refusal == Refusal::Guess {
                tokio::time::sleep(PENALTY).await;
            }
            let ask = [(header::WWW_AUTHENTICATE, "Bearer"), (header::CONNECTION, "close")];
            let why = "refused: show the token of [web] as `Authorization: Bearer`, or log in at /login\n";
            (StatusCode::UNAUTHORIZED, ask, why).into_response()
        }
        Err(Refusal::Wait(seconds)) => too_many_guesses(&server, peer, seconds),
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Refuses a request because the address must wait before its next token is checked.
fn too_many_guesses(server: &Server, peer: Peer, seconds: u64) -> Response {
    server.counters.refused_guesses.add();
    server.refuse(peer, "too many wrong tokens");
    let about = [(header::RETRY_AFTER, seconds.to_string()), (header::CONNECTION, "close".to_owned())];
    let why = format!("refused: too many wrong tokens came from this address; try again in {seconds} s\n");
    (StatusCode::TOO_MANY_REQUESTS, about, why).into_response()
}

fn html(code: StatusCode, text: String) -> Response {
    (code, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], text).into_response()
}

/// Shows the login form.
pub(super) async fn form(State(server): State<Arc<Server>>) -> Response {
    if !server.access.has_token() {
        return Redirect::to("/").into_response();
    }
    html(StatusCode::OK, page::text("login.html").replace("<!--wrong-->", ""))
}

/// Exchanges the token of the form for a cookie.
pub(super) async fn login(
    State(server): State<Arc<Server>>,
    Extension(peer): Extension<Peer>,
    Form(shown): Form<HashMap<String, String>>,
) -> Response {
    let shown = shown.get("token").map_or("", |token| token.trim());
    match server.access.check(shown, peer.0.ip()) {
        Ok(()) => {
            let Some(cookie) = server.access.log_in() else {
                return (StatusCode::SERVICE_UNAVAILABLE, "the system has no randomness for a cookie\n")
                    .into_response();
            };
            let Access { cookie: name, secure, .. } = &server.access;
            let cookie = format!(
                "{name}={cookie}; Path=/; Max-Age={COOKIE_SECONDS}; HttpOnly; SameSite=Strict{secure}"
            );
            ([(header::SET_COOKIE, cookie)], Redirect::to("/")).into_response()
        }
        Err(Refusal::Wait(seconds)) => too_many_guesses(&server, peer, seconds),
        Err(_) => {
            server.counters.refused_token.add();
            server.refuse(peer, "a wrong token at the login");
            tokio::time::sleep(PENALTY).await;
            let wrong = "<p class=\"wrong\" role=\"alert\">That is not the token.</p>";
            html(StatusCode::UNAUTHORIZED, page::text("login.html").replace("<!--wrong-->", wrong))
        }
    }
}

/// Ends a login by revoking its cookie.
pub(super) async fn logout(State(server): State<Arc<Server>>, headers: HeaderMap) -> Response {
    server.access.log_out(&headers);
    let Access { cookie, secure, .. } = &server.access;
    let gone = format!("{cookie}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict{secure}");
    ([(header::SET_COOKIE, gone)], Redirect::to("/login")).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
    }

    #[test]
    fn on_loopback_only_its_own_names_are_answered() {
        let access = Access::new("127.0.0.1:8080".parse().unwrap(), None, false);
        let judge = |host: &str| access.judge("/", &headers(&[(header::HOST, host)]), LOCAL);
        for host in ["localhost:8080", "127.0.0.1:8080", "[::1]:8080", "LOCALHOST:8080"] {
            assert_eq!(judge(host), Ok(()), "{host}");
        }
        for host in ["evil.example:8080", "localhost", "localhost:8081", "127.0.0.1.evil.example:8080", ""] {
            assert_eq!(judge(host), Err(Refusal::Host), "{host}");
        }
        assert_eq!(access.judge("/", &HeaderMap::new(), LOCAL), Err(Refusal::Host));
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        let access = Access::new("127.0.0.1:8080".parse().unwrap(), None, false);
        let judge = |origin: &str| {
            let headers = headers(&[(header::HOST, "localhost:8080"), (header::ORIGIN, origin)]);
            access.judge("/live", &headers, LOCAL)
        };
        assert_eq!(judge("http://localhost:8080"), Ok(()));
        for origin in ["http://evil.example", "http://localhost:3000", "null", "", "file://localhost:8080"] {
            assert_eq!(judge(origin), Err(Refusal::Origin), "{origin}");
        }
    }

    #[test]
    fn a_configured_token_is_required() {
        let access = Access::new("0.0.0.0:80".parse().unwrap(), Some("secret".into()), false);
        let cookie = access.log_in().unwrap();
        let other = access.log_in().unwrap();
        let judge = |path: &str, name: HeaderName, value: &str| {
            access.judge(path, &headers(&[(header::HOST, "plant.example"), (name, value)]), LOCAL)
        };
        for scheme in ["Bearer", "bearer", "BEARER"] {
            assert_eq!(judge("/metrics", header::AUTHORIZATION, &format!("{scheme} secret")), Ok(()));
        }
        let right = format!("a=b; tapeworks_80={cookie}");
        assert_eq!(judge("/live", header::COOKIE, &right), Ok(()));
        for wrong in ["tapeworks_80=secret", "tapeworks_80=", "tapeworks_81=x", &cookie] {
            assert_eq!(judge("/live", header::COOKIE, wrong), Err(Refusal::Token), "{wrong}");
        }
        assert_eq!(judge("/health", header::COOKIE, ""), Ok(()));
        for wrong in ["Bearer secre", "Bearer secret2", "secret", "Basic secret", ""] {
            assert_eq!(judge("/metrics", header::AUTHORIZATION, wrong), Err(Refusal::Guess), "{wrong}");
        }
        // A logout ends only its own login.
        assert_ne!(cookie, other);
        access.log_out(&headers(&[(header::COOKIE, &right)]));
        assert_eq!(judge("/live", header::COOKIE, &right), Err(Refusal::Token));
        assert_eq!(judge("/live", header::COOKIE, &format!("tapeworks_80={other}")), Ok(()));
        assert!(!format!("{access:?}").contains("secret"));
    }

    #[test]
    fn an_address_that_guesses_tokens_waits_longer_each_time_and_others_do_not() {
        let access = Access::new("0.0.0.0:80".parse().unwrap(), Some("secret".into()), false);
        let began = Instant::now();
        let (mut now, mut waits) = (began, Vec::new());
        for _ in 0..13 {
            access.guessed(LOCAL, now);
            let wait = access.wait(LOCAL, now);
            waits.push(wait);
            now += Duration::from_secs(wait);
            assert_eq!(access.wait(LOCAL, now), 0);
        }
        assert_eq!(waits, [0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60]);
        // At one guess a minute, a day allows some 1,400 guesses.
        access.guessed(LOCAL, Instant::now() + Duration::from_secs(1_000));
        let other = IpAddr::from([192, 0, 2, 7]);
        assert_eq!((access.wait(other, now), access.check("secret", other)), (0, Ok(())));
        // Behind a proxy, a client with the token is admitted even if it shares its address with a guesser.
        let guesser = IpAddr::from([192, 0, 2, 8]);
        (0..=FREE_GUESSES).for_each(|_| access.guessed(guesser, Instant::now()));
        assert!(matches!(access.check("guess", guesser), Err(Refusal::Wait(1..))));
        assert_eq!(access.check("secret", guesser), Ok(()));
        // After a while everything is forgotten.
        let later = now + 2 * LONGEST_WAIT;
        access.guessed(LOCAL, later + Duration::from_secs(2_000));
        assert_eq!(access.wait(LOCAL, later + Duration::from_secs(2_000)), 0);
    }

    #[test]
    fn the_number_of_remembered_logins_and_guessers_is_limited() {
        let access = Access::new("0.0.0.0:80".parse().unwrap(), Some("secret".into()), false);
        let now = Instant::now();
        for number in 0..2 * MOST_GUESSERS as u32 {
            access.guessed(IpAddr::from(std::net::Ipv4Addr::from_bits(number)), now);
        }
        assert_eq!(access.guessers.lock().unwrap().len(), MOST_GUESSERS);
        let cookies: Vec<String> = (0..=MOST_LOGINS).map(|_| access.log_in().unwrap()).collect();
        let has = |cookie: &str| {
            access.has_cookie(&headers(&[(header::COOKIE, &format!("tapeworks_80={cookie}"))]))
        };
        assert!(!has(&cookies[0]) && cookies[1..].iter().all(|cookie| has(cookie)));
    }
}
