//! Watches a descriptor on Node's own loop, so that an answer costs no detour over another thread.
//!
//! Node-API hands out the loop, but the functions for it are libuv's, which Node exports to native
//! parts. They are looked up when first needed: a program that is not Node, but can load native parts
//! made for it, may be without them. Then nothing is watched, and notifications tell everything.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::{CStr, c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::OnceLock;

use napi::bindgen_prelude::{Function, JsValue};
use napi::{Env, sys};

// From libuv's uv.h; its ABI is stable within the major version, which every Node so far shares.
const UV_POLL: c_int = 8;
const UV_READABLE: c_int = 1;

type Loop = *mut c_void;
type Poll = *mut c_void;
type Readable = unsafe extern "C" fn(Poll, c_int, c_int);
type Closed = unsafe extern "C" fn(Poll);

#[derive(Clone, Copy)]
struct Uv {
    handle_size: unsafe extern "C" fn(c_int) -> usize,
    set_data: unsafe extern "C" fn(Poll, *mut c_void),
    get_data: unsafe extern "C" fn(Poll) -> *mut c_void,
    poll_init: unsafe extern "C" fn(Loop, Poll, c_int) -> c_int,
    poll_start: unsafe extern "C" fn(Poll, c_int, Readable) -> c_int,
    unref: unsafe extern "C" fn(Poll),
    close: unsafe extern "C" fn(Poll, Closed),
}

impl Uv {
    fn find() -> Option<Self> {
        static FOUND: OnceLock<Option<Uv>> = OnceLock::new();
        *FOUND.get_or_init(Self::look_up)
    }

    fn look_up() -> Option<Self> {
        fn symbol<F: Copy>(name: &CStr) -> Option<F> {
            // SAFETY: it only looks the name up in what is loaded.
            let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            debug_assert_eq!(size_of::<F>(), size_of_val(&found));
            // SAFETY: every type above is a function pointer with the signature that uv.h gives it.
            (!found.is_null()).then(|| unsafe { std::mem::transmute_copy(&found) })
        }
        Some(Self {
            handle_size: symbol(c"uv_handle_size")?,
            set_data: symbol(c"uv_handle_set_data")?,
            get_data: symbol(c"uv_handle_get_data")?,
            poll_init: symbol(c"uv_poll_init")?,
            poll_start: symbol(c"uv_poll_start")?,
            unref: symbol(c"uv_unref")?,
            close: symbol(c"uv_close")?,
        })
    }
}

/// What belongs to one watched descriptor: freed when its environment ends.
struct Watch {
    uv: Uv,
    env: sys::napi_env,
    /// The JavaScript function to call.
    turn: sys::napi_ref,
    poll: Poll,
    layout: Layout,
    _descriptor: OwnedFd,
    /// Says at the end of the environment that the loop has let go of the handle.
    cleaned_up: sys::napi_async_cleanup_hook_handle,
}

/// Calls `turn` on the loop whenever the descriptor is readable, for as long as the environment lives.
/// Does not keep the loop alive.
pub fn watch(env: Env, descriptor: c_int, turn: Function<'_, (), ()>) -> Option<()> {
    let uv = Uv::find()?;
    let uv_loop = env.get_uv_event_loop().ok()?.cast();
    // SAFETY: it is open as long as the host loop lives, which made it just now. Watched is another
    // descriptor of the same file, which ends with the watch.
    let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned().ok()?;
    let mut reference = ptr::null_mut();
    // SAFETY: both belong to this environment.
    let made = unsafe { sys::napi_create_reference(env.raw(), turn.raw(), 1, &mut reference) };
    // SAFETY: it has no condition.
    let layout = Layout::from_size_align(unsafe { (uv.handle_size)(UV_POLL) }, 16).ok()?;
    if made != sys::Status::napi_ok || layout.size() == 0 {
        return None;
    }
    // SAFETY: the size is not zero; libuv wants room of its size and fills it.
    let poll: Poll = unsafe { alloc_zeroed(layout) }.cast();
    if poll.is_null() {
        return None;
    }
    // SAFETY: this is the loop's thread, and the handle has room.
    if unsafe { (uv.poll_init)(uv_loop, poll, descriptor.as_raw_fd()) } != 0 {
        // SAFETY: made above with this layout, and libuv did not take it.
        unsafe { dealloc(poll.cast(), layout) };
        return None;
    }
    let watch = Box::into_raw(Box::new(Watch {
        uv,
        env: env.raw(),
        turn: reference,
        poll,
        layout,
        _descriptor: descriptor,
        cleaned_up: ptr::null_mut(),
    }));
    // SAFETY: the handle was made above, and the watch lives until the handle is closed.
    unsafe {
        (uv.set_data)(poll, watch.cast());
        (uv.unref)(poll);
        sys::napi_add_async_cleanup_hook(env.raw(), Some(end), watch.cast(), &mut (*watch).cleaned_up);
        ((uv.poll_start)(poll, UV_READABLE, readable) == 0).then_some(())
    }
}

unsafe extern "C" fn readable(poll: Poll, _status: c_int, _events: c_int) {
    let Some(uv) = Uv::find() else { return };
    // SAFETY: `watch` has put it there; it lives until the handle is closed.
    let (env, turn) = unsafe {
        let watch: *mut Watch = (uv.get_data)(poll).cast();
        ((*watch).env, (*watch).turn)
    };
    let mut scope = ptr::null_mut();
    // SAFETY: libuv calls this on the environment's thread, outside of any JavaScript.
    unsafe {
        if sys::napi_open_handle_scope(env, &mut scope) != sys::Status::napi_ok {
            return;
        }
        let (mut function, mut this, mut result) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        if sys::napi_get_reference_value(env, turn, &mut function) == sys::Status::napi_ok
            && sys::napi_get_global(env, &mut this) == sys::Status::napi_ok
        {
            // Runs what the promises that it resolves lead to as well.
            let status =
                sys::napi_make_callback(env, ptr::null_mut(), this, function, 0, ptr::null(), &mut result);
            let mut error = ptr::null_mut();
            if status == sys::Status::napi_pending_exception
                && sys::napi_get_and_clear_last_exception(env, &mut error) == sys::Status::napi_ok
            {
                sys::napi_fatal_exception(env, error);
            }
        }
        sys::napi_close_handle_scope(env, scope);
    }
}

unsafe extern "C" fn end(_handle: sys::napi_async_cleanup_hook_handle, watch: *mut c_void) {
    let watch: *mut Watch = watch.cast();
    // SAFETY: the environment ends once, on its thread, with everything still there.
    unsafe {
        sys::napi_delete_reference((*watch).env, (*watch).turn);
        ((*watch).uv.close)((*watch).poll, closed);
    }
}

unsafe extern "C" fn closed(poll: Poll) {
    let Some(uv) = Uv::find() else { return };
    // SAFETY: libuv has let go of the handle, and nobody else knows the watch.
    unsafe {
        let watch = Box::from_raw((uv.get_data)(poll).cast::<Watch>());
        dealloc(poll.cast(), watch.layout);
        sys::napi_remove_async_cleanup_hook(watch.cleaned_up);
    }
}
