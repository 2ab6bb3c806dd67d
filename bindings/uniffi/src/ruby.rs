//! What only Ruby needs: it is notified that a call may go on by a byte in a pipe, and it tells of its forks.
//!
//! A callback into Ruby from a thread of ours would wait for Ruby's interpreter lock, and in a forked child
//! no thread would carry it out. `ruby/lib/polylatch/waiting.rb` hands this function over in its place.

use std::io;

use polylatch_bridge::process;

/// Writes one byte, how the call stands, into a pipe. Ruby reads it before it closes the pipe, and every
/// poll is answered once, so the number is that of an open pipe.
#[cfg(unix)]
#[unsafe(no_mangle)]
pub extern "C" fn polylatch_tell_ruby(pipe: u64, code: i8) {
    let Ok(pipe) = i32::try_from(pipe) else { return };
    let byte = code.to_ne_bytes();
    loop {
        // SAFETY: the buffer has one byte. A wrong number is answered with an error, and changes nothing here.
        let written = unsafe { libc::write(pipe, byte.as_ptr().cast(), 1) };
        if written == 1 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return;
        }
    }
}

/// Closes the files of `sqlite:` stores whose clients hold nothing; at most a second. `ruby/lib/polylatch/forks.rb`
/// calls it before each fork.
#[unsafe(no_mangle)]
pub extern "C" fn polylatch_before_fork() {
    process::before_fork();
}

/// Ends what [`polylatch_before_fork`] began, in the parent.
#[unsafe(no_mangle)]
pub extern "C" fn polylatch_after_fork_in_parent() {
    process::after_fork_in_parent();
}
