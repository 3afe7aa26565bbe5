//! Who may look.
//!
//! On loopback without a token everybody on this machine may, and nobody else: a page of somebody else's that a browser here
//! has open reaches the port too, by a name of its own that leads to this machine (DNS rebinding), so `Host` must be
//! loopback's. Elsewhere, and wherever a token is set, the token must be shown: `Authorization: Bearer`, or a cookie that
//! the form at `/login` gives. Requests that a browser makes for another site's page (`Origin`) are refused everywhere.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::{Form, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::{App, Peer, page};

/// What may be had without a token.
const OPEN: [&str; 4] = ["/health", "/login", "/style.css", "/icon.svg"];

/// How long a wrong token waits for its answer.
const PENALTY: Duration = Duration::from_millis(500);

/// A month, in s.
const COOKIE_SECONDS: u32 = 30 * 86_400;

/// Everything from here, nothing in the page's own text, in nobody's frame.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

const HEADERS: [(HeaderName, &str); 5] = [
    (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    // Not `no-referrer`: of a form sent under that the browser says `Origin: null`.
    (header::REFERRER_POLICY, "same-origin"),
    (header::CACHE_CONTROL, "no-cache"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Who may look. Has no token, only what tokens are compared with.
pub(super) struct Access {
    /// The values of `Host` that are ours, where only loopback's are.
    hosts: Option<Vec<String>>,
    /// The hash of the token, and what the cookie holds.
    token: Option<([u8; 32], String)>,
    cookie: String,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

/// Why somebody may not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Refusal {
    Host,
    Origin,
    Token,
}

fn hash(what: &str, text: &str) -> [u8; 32] {
    Sha256::new().chain_update(what).chain_update([0]).chain_update(text).finalize().into()
}

impl Access {
    pub(super) fn new(address: SocketAddr, token: Option<&str>) -> Self {
        let port = address.port();
        let hosts = address.ip().is_loopback().then(|| {
            let names = ["localhost", "127.0.0.1", "[::1]"];
            let mut hosts: Vec<String> = names.iter().map(|name| format!("{name}:{port}")).collect();
            hosts.push(address.to_string());
            if port == 80 {
                hosts.extend(names.map(str::to_owned));
            }
            hosts
        });
        // The same after a restart, so that pages that wait for it come back by themselves.
        let token = token.map(|token| (hash("token", token), hex::encode(hash("cookie", token))));
        Self { hosts, token, cookie: format!("tapeworks_{port}") }
    }

    /// Whether it is the token, in a time that does not tell how much of it is right.
    fn is_token(&self, shown: &str) -> bool {
        self.token.as_ref().is_some_and(|(token, _)| hash("token", shown).ct_eq(token).into())
    }

    fn has_cookie(&self, headers: &HeaderMap) -> bool {
        let Some((_, expected)) = &self.token else { return false };
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
        cookies.flat_map(|cookies| cookies.split(';')).filter_map(|cookie| cookie.trim().split_once('=')).any(
            |(name, value)| name == self.cookie && bool::from(value.as_bytes().ct_eq(expected.as_bytes())),
        )
    }

    fn has_bearer(&self, headers: &HeaderMap) -> bool {
        let shown = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        shown.and_then(|value| value.strip_prefix("Bearer ")).is_some_and(|token| self.is_token(token.trim()))
    }

    fn judge(&self, path: &str, headers: &HeaderMap) -> Result<(), Refusal> {
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
        if is_open || self.has_bearer(headers) || self.has_cookie(headers) {
            Ok(())
        } else {
            Err(Refusal::Token)
        }
    }
}

/// Stands before every request.
pub(super) async fn guard(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path();
    let mut response = match app.access.judge(path, request.headers()) {
        Ok(()) => {
            app.counters.requests.add();
            next.run(request).await
        }
        Err(Refusal::Host) => {
            app.counters.refused_host.add();
            app.refuse(peer, "a Host header of another server");
            let why = "refused: the Host header is none of this server's names (localhost, 127.0.0.1, [::1], with the port)\n";
            (StatusCode::MISDIRECTED_REQUEST, why).into_response()
        }
        Err(Refusal::Origin) => {
            app.counters.refused_origin.add();
            app.refuse(peer, "a request from another site's page");
            (StatusCode::FORBIDDEN, "refused: the request comes from another site's page\n").into_response()
        }
        Err(Refusal::Token) if path == "/" => Redirect::to("/login").into_response(),
        Err(Refusal::Token) => {
            app.counters.refused_token.add();
            app.refuse(peer, "no token, or a wrong one");
            let ask = [(header::WWW_AUTHENTICATE, "Bearer")];
            let why = "refused: show the token of [web] as `Authorization: Bearer`, or log in at /login\n";
            (StatusCode::UNAUTHORIZED, ask, why).into_response()
        }
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn html(code: StatusCode, text: String) -> Response {
    (code, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], text).into_response()
}

/// The form.
pub(super) async fn form(State(app): State<Arc<App>>) -> Response {
    if app.access.token.is_none() {
        return Redirect::to("/").into_response();
    }
    html(StatusCode::OK, page::text("login.html").replace("<!--wrong-->", ""))
}

/// Takes the token from the form, and gives a cookie for it.
pub(super) async fn login(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    Form(shown): Form<HashMap<String, String>>,
) -> Response {
    let shown = shown.get("token").map_or("", |token| token.trim());
    match &app.access.token {
        Some((_, cookie)) if app.access.is_token(shown) => {
            let name = &app.access.cookie;
            let cookie =
                format!("{name}={cookie}; Path=/; Max-Age={COOKIE_SECONDS}; HttpOnly; SameSite=Strict");
            ([(header::SET_COOKIE, cookie)], Redirect::to("/")).into_response()
        }
        _ => {
            app.counters.refused_token.add();
            app.refuse(peer, "a wrong token at the login");
            tokio::time::sleep(PENALTY).await;
            let wrong = "<p class=\"wrong\" role=\"alert\">That is not the token.</p>";
            html(StatusCode::UNAUTHORIZED, page::text("login.html").replace("<!--wrong-->", wrong))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
    }

    #[test]
    fn on_loopback_only_its_own_names_are_answered() {
        let access = Access::new("127.0.0.1:8080".parse().unwrap(), None);
        let judge = |host: &str| access.judge("/", &headers(&[(header::HOST, host)]));
        for host in ["localhost:8080", "127.0.0.1:8080", "[::1]:8080", "LOCALHOST:8080"] {
            assert_eq!(judge(host), Ok(()), "{host}");
        }
        for host in ["evil.example:8080", "localhost", "localhost:8081", "127.0.0.1.evil.example:8080", ""] {
            assert_eq!(judge(host), Err(Refusal::Host), "{host}");
        }
        assert_eq!(access.judge("/", &HeaderMap::new()), Err(Refusal::Host));
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        let access = Access::new("127.0.0.1:8080".parse().unwrap(), None);
        let judge = |origin: &str| {
            access.judge("/live", &headers(&[(header::HOST, "localhost:8080"), (header::ORIGIN, origin)]))
        };
        assert_eq!(judge("http://localhost:8080"), Ok(()));
        for origin in ["http://evil.example", "http://localhost:3000", "null", "", "file://localhost:8080"] {
            assert_eq!(judge(origin), Err(Refusal::Origin), "{origin}");
        }
    }

    #[test]
    fn where_there_is_a_token_it_must_be_shown() {
        let access = Access::new("0.0.0.0:80".parse().unwrap(), Some("secret"));
        let (_, cookie) = access.token.clone().unwrap();
        let judge = |path: &str, name: HeaderName, value: &str| {
            access.judge(path, &headers(&[(header::HOST, "plant.example"), (name, value)]))
        };
        assert_eq!(judge("/metrics", header::AUTHORIZATION, "Bearer secret"), Ok(()));
        let right = format!("a=b; tapeworks_80={cookie}");
        assert_eq!(judge("/live", header::COOKIE, &right), Ok(()));
        for wrong in ["Bearer secre", "Bearer secret2", "secret", "Basic secret", ""] {
            assert_eq!(judge("/metrics", header::AUTHORIZATION, wrong), Err(Refusal::Token), "{wrong}");
        }
        for wrong in ["tapeworks_80=secret", "tapeworks_80=", "tapeworks_81=x", &cookie] {
            assert_eq!(judge("/live", header::COOKIE, wrong), Err(Refusal::Token), "{wrong}");
        }
        assert_eq!(judge("/health", header::COOKIE, ""), Ok(()));
        assert!(!format!("{access:?}").contains("secret"));
    }
}
