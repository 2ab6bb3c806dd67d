//! The port over the program's own way to send HTTP requests, such as `fetch`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::backend::Reply;
use crate::backend::http::{Address, Port, Request, Response, Server};
use crate::error::{Effect, Error, ErrorKind, Result};
use crate::host::{Failure, HttpClient, HttpRequest};

/// A port over host-provided connections.
pub(crate) struct HostedPort {
    server: &'static Server,
    client: Arc<dyn HttpClient>,
    /// Such as `https://consul.example:8501`.
    origin: String,
    place: String,
    closed: AtomicBool,
}

impl HostedPort {
    /// Errors: `invalid_config` for what only the core's own connections can do.
    pub(crate) fn new(
        server: &'static Server,
        client: Arc<dyn HttpClient>,
        address: &Address,
    ) -> Result<Self> {
        let scheme = match address {
            Address::Tcp { .. } => "http",
            Address::Tls { files, .. } if *files == Default::default() => "https",
            Address::Tls { .. } => {
                return Err(Error::new(
                    ErrorKind::InvalidConfig,
                    "ca, cert and key are for connections that Polylatch opens; give them to the program's own client",
                ));
            }
            Address::Unix(_) => {
                return Err(Error::new(
                    ErrorKind::InvalidConfig,
                    format!(
                        "HTTP over a unix socket needs a connection that Polylatch opens; write {}://HOST:PORT",
                        server.plain_scheme
                    ),
                ));
            }
        };
        let place = address.place();
        Ok(Self {
            server,
            client,
            origin: format!("{scheme}://{place}"),
            place,
            closed: AtomicBool::new(false),
        })
    }
}

impl Port for HostedPort {
    fn request(&self, request: Request) -> Reply<Response> {
        if self.closed.load(Ordering::SeqCst) {
            let error = Error::new(ErrorKind::Canceled, "this client was closed");
            return Box::pin(std::future::ready(Err(error)));
        }
        let (server, place) = (self.server, self.place.clone());
        let limit = request.limit;
        let mut headers: Vec<_> = request.headers.into_iter().map(|(name, value)| (name, value.0)).collect();
        if !request.body.is_empty() {
            headers.push(("Content-Type", "application/json".to_owned()));
        }
        let answer = self.client.request(HttpRequest {
            method: request.method,
            url: format!("{}{}", self.origin, request.target),
            headers,
            body: request.body,
            limit,
            enough: request.enough,
        });
        Box::pin(async move {
            match tokio::time::timeout(limit, answer).await {
                Ok(Ok(response)) => Ok(Response {
                    status: response.status,
                    index: response.consul_index.and_then(|text| text.parse().ok()),
                    body: response.body,
                }),
                Ok(Err(failure)) => Err(failed(failure, server, &place)),
                Err(_) => Err(Error::new(
                    ErrorKind::BackendUnavailable,
                    format!("{} at {place} did not answer within {limit:?}", server.name),
                )
                .with_effect(Effect::Maybe)),
            }
        })
    }

    fn place(&self) -> String {
        self.place.clone()
    }

    fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }
}

fn failed(failure: Failure, server: &Server, place: &str) -> Error {
    let name = server.name;
    let (kind, effect, message) = match &failure {
        Failure::Broken(_) => (
            ErrorKind::BackendUnavailable,
            Effect::Maybe,
            format!(
                "no answer from {name} at {place}; is {} there, and does it let this page ask ({})?",
                server.process, server.lets_pages_ask
            ),
        ),
        Failure::Nonsense(what) => (
            ErrorKind::BackendRejected,
            Effect::Maybe,
            format!("the program's way to send HTTP requests to {name} at {place} answered with {what}"),
        ),
        Failure::Unsupported => (
            ErrorKind::Unsupported,
            Effect::None,
            format!("the program's way to send HTTP requests cannot ask {name} at {place}"),
        ),
    };
    let error = Error::new(kind, message).with_effect(effect);
    match failure {
        Failure::Broken(cause) => error.with_source(cause),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static ANY: Server = Server {
        name: "Consul",
        process: "an agent",
        plain_scheme: "consul",
        tls_scheme: "consul+https",
        lets_pages_ask: "http_config",
    };

    #[test]
    fn only_what_was_sent_may_have_happened() {
        for (failure, kind, effect) in [
            (Failure::Broken("reset".into()), ErrorKind::BackendUnavailable, Effect::Maybe),
            (Failure::Nonsense("an object".into()), ErrorKind::BackendRejected, Effect::Maybe),
            (Failure::Unsupported, ErrorKind::Unsupported, Effect::None),
        ] {
            let error = failed(failure, &ANY, "[::1]:8500");
            assert_eq!((error.kind(), error.effect()), (kind, effect));
            assert!(error.to_string().contains("[::1]:8500"), "{error}");
        }
    }
}
