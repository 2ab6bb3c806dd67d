//! HTTP requests by `fetch`.

use js_sys::{Function, Object, Reflect, Uint8Array};
use polylatch::host::{Answer, Failure, HttpClient, HttpRequest, HttpResponse};
use wasm_bindgen::prelude::*;

use crate::promise::{Here, kind_of, settled, text_of};

#[wasm_bindgen]
extern "C" {
    type AbortController;
    #[wasm_bindgen(constructor)]
    fn new() -> AbortController;
    #[wasm_bindgen(method, getter)]
    fn signal(this: &AbortController) -> JsValue;
    #[wasm_bindgen(method)]
    fn abort(this: &AbortController);
}

/// The program's `fetch`, or the host's.
pub struct HostFetch(pub Function);

/// Ends a request that no caller waits for any more.
struct AbortOnDrop(AbortController);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl HttpClient for HostFetch {
    fn request(&self, request: HttpRequest) -> Answer<HttpResponse> {
        let controller = AbortOnDrop(AbortController::new());
        let returned = init(&request, &controller.0)
            .and_then(|init| self.0.call2(&JsValue::UNDEFINED, &request.url.as_str().into(), &init));
        Box::pin(Here::new(async move {
            let _controller = controller;
            let broken = |thrown: JsValue| Failure::Broken(text_of(&thrown));
            let response = settled(returned).await.map_err(broken)?;
            let nonsense = || Failure::Nonsense(format!("{} that is no Response", kind_of(&response)));
            let get = |of: &JsValue, name: &str| Reflect::get(of, &name.into());
            let status =
                get(&response, "status").ok().and_then(|status| status.as_f64()).ok_or_else(nonsense)?;
            let consul_index = get(&response, "headers")
                .and_then(|headers| {
                    let get = get(&headers, "get")?.dyn_into::<Function>()?;
                    get.call1(&headers, &"x-consul-index".into())
                })
                .map_err(|_| nonsense())?
                .as_string();
            let status = status as u16;
            // Only etcd asks for parts, so the other modules have no code for that.
            #[cfg(feature = "etcd")]
            if let Some(enough) = request.enough {
                return Ok(HttpResponse { status, consul_index, body: parts_of(&response, enough).await? });
            }
            let read = get(&response, "arrayBuffer")
                .and_then(|read| read.dyn_into::<Function>())
                .map_err(|_| nonsense())?;
            let body = settled(read.call0(&response)).await.map_err(broken)?;
            Ok(HttpResponse { status, consul_index, body: Uint8Array::new(&body).to_vec() })
        }))
    }
}

/// Reads a body as it arrives, until it is enough or ends.
#[cfg(feature = "etcd")]
async fn parts_of(response: &JsValue, enough: fn(&[u8]) -> bool) -> Result<Vec<u8>, Failure> {
    let get = |of: &JsValue, name: &str| Reflect::get(of, &name.into());
    let call = |of: &JsValue, name: &str| get(of, name)?.dyn_into::<Function>()?.call0(of);
    // A `fetch` of the program's own may answer with a body that is there only as a whole.
    let reader =
        get(response, "body").and_then(|body| call(&body, "getReader")).map_err(|_| Failure::Unsupported)?;
    let mut bytes = Vec::new();
    while !enough(&bytes) {
        let part =
            settled(call(&reader, "read")).await.map_err(|thrown| Failure::Broken(text_of(&thrown)))?;
        match get(&part, "value") {
            Ok(value) if value.is_object() => bytes.extend(Uint8Array::new(&value).to_vec()),
            _ => break,
        }
    }
    Ok(bytes)
}

fn init(request: &HttpRequest, controller: &AbortController) -> Result<JsValue, JsValue> {
    let init = Object::new();
    let set = |name: &str, value: &JsValue| Reflect::set(&init, &name.into(), value);
    let headers = Object::new();
    for (name, value) in &request.headers {
        Reflect::set(&headers, &(*name).into(), &value.as_str().into())?;
    }
    set("method", &request.method.into())?;
    set("headers", &headers)?;
    set("signal", &controller.signal())?;
    // Not followed: that would take the token to wherever the answer points. Nor does the core's own client.
    set("redirect", &"manual".into())?;
    // A blocking query answered from a cache would be no answer.
    set("cache", &"no-store".into())?;
    if !request.body.is_empty() {
        set("body", &Uint8Array::from(request.body.as_slice()))?;
    }
    Ok(init.into())
}
