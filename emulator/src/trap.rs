//! The signal handler for illegal instructions.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use crate::amx_tiles::EmulatedTiles;
use crate::decode::{Registers, decode};

thread_local! {
    static TILES: UnsafeCell<EmulatedTiles> = const { UnsafeCell::new(EmulatedTiles::NEW) };
}

pub(crate) fn install() -> bool {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    *INSTALLED.get_or_init(|| {
        let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = handle;
        // SAFETY: an all-zero action is valid, and the handler has the signature that the flags require.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(libc::SIGILL, &raw const action, std::ptr::null_mut()) == 0
        }
    })
}

/// The indices of the general registers in the signal context.
const GENERAL: [c_int; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

extern "C" fn handle(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the system passes the context of the thread, which is stopped at an instruction; nothing else of the
    // thread uses its tiles meanwhile, and an AMX instruction accesses only the memory that its encoding states.
    unsafe {
        let fields = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        let registers = Registers {
            general: GENERAL.map(|register| fields[register as usize] as u64),
            instruction: fields[libc::REG_RIP as usize] as u64,
        };
        let done = decode(&registers).and_then(|(instruction, length)| {
            TILES.with(|tiles| (*tiles.get()).run(instruction))?;
            Some(length)
        });
        match done {
            Some(length) => fields[libc::REG_RIP as usize] += length as i64,
            // The instruction runs again and ends the process.
            None => {
                libc::signal(libc::SIGILL, libc::SIG_DFL);
            }
        }
    }
}
