//! Whether matrix instructions may be used: the processor has them, the system keeps their registers, gives
//! permission, and one of them was seen to work.
//!
//! Tiles are large, so Linux gives them only to processes that ask. A hypervisor may show the processor's bits and
//! still trap the instructions; the first product runs in a child process that shares our memory and leaves where it is
//! refused.

use core::arch::asm;
use core::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};

/// Whether this process may use tiles of bytes, now that it has asked.
pub(super) fn usable() -> bool {
    in_processor() && kept_by_the_system() && permitted() && seen_to_work()
}

fn in_processor() -> bool {
    const TILES: u32 = 1 << 24;
    const BYTES: u32 = 1 << 25;
    __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & (TILES | BYTES) == TILES | BYTES
}

/// Whether the system saves the tiles and their configuration when it changes threads.
fn kept_by_the_system() -> bool {
    const READABLE: u32 = 1 << 27;
    const TILES: u64 = 3 << 17;
    // SAFETY: the bit says that the register can be read.
    __cpuid(1).ecx & READABLE != 0 && unsafe { extended_state() } & TILES == TILES
}

#[target_feature(enable = "xsave")]
fn extended_state() -> u64 {
    // SAFETY: register 0 is always there.
    unsafe { _xgetbv(0) }
}

/// Asks the system for the tiles, for all threads of the process.
fn permitted() -> bool {
    const PROCESS_CONTROL: usize = 158;
    const REQUEST: usize = 0x1023;
    const TILE_DATA: usize = 18;
    // SAFETY: the call touches no memory of ours.
    unsafe { system_call(PROCESS_CONTROL, [REQUEST, TILE_DATA, 0, 0]) == 0 }
}

/// A configuration of three tiles, the numbers that go in and those that come out.
#[repr(C, align(64))]
struct Trial {
    configuration: [u8; 64],
    ones: [[u8; 64]; 16],
    result: [[i32; 16]; 16],
}

fn seen_to_work() -> bool {
    let mut configuration = [0; 64];
    configuration[0] = 1;
    for tile in 0..3 {
        configuration[16 + 2 * tile] = 64;
        configuration[48 + tile] = 16;
    }
    let mut trial = Trial { configuration, ones: [[1; 64]; 16], result: [[0; 16]; 16] };
    // SAFETY: the trial is as long as the instructions say, and nobody else uses it.
    unsafe { in_a_child(&mut trial) && trial.result == [[64; 16]; 16] }
}

/// Multiplies in a child that has our memory but its own signals; we wait until it has ended. False where there was
/// no child or it did not end well.
///
/// # Safety
/// The machine must be Linux.
unsafe fn in_a_child(trial: &mut Trial) -> bool {
    const MASK: usize = 14;
    const SET: usize = 2;
    const WAIT: usize = 61;
    const ALL_CHILDREN: usize = 0x4000_0000;
    // All signals but those of instructions that the processor refuses: no handler of the host runs in the child,
    // and nothing interrupts the waiting.
    let (blocked, mut before) = (!(1_u64 << 3 | 1 << 10), 0_u64);
    let mut status = -1_i32;
    // SAFETY: every address is that of something here.
    unsafe {
        if system_call(MASK, [SET, (&raw const blocked).addr(), (&raw mut before).addr(), 8]) != 0 {
            return false;
        }
        let child = multiply(trial);
        let ended = child > 0
            && system_call(WAIT, [child as usize, (&raw mut status).addr(), ALL_CHILDREN, 0]) == child;
        system_call(MASK, [SET, (&raw const before).addr(), 0, 8]);
        ended && status == 0
    }
}

/// The multiplication and the child that does it; gives the child's number once it has ended, or an error.
///
/// # Safety
/// As for [`in_a_child`].
unsafe fn multiply(trial: &mut Trial) -> isize {
    // Shared memory; the parent stands still until the child is gone; no signal when it goes.
    const FLAGS: usize = 0x100 | 0x4000;
    // What to do, that a place to return to is given, that place, and what to block meanwhile.
    let mut action = [0_u64, 0x0400_0000, 0, 0];
    let child: isize;
    // SAFETY: the child runs on our stack below what we use of it, and leaves within the block. Its actions are a
    // copy of ours. A refused instruction leads to its own exit rather than to its death: that would write its
    // memory, which is ours, to a file, and older systems would end all who share it.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "lea rax, [rip + 3f]",
            "mov [{action}], rax",
            "mov [{action} + 16], rax",
            "mov rsi, {action}",
            "xor edx, edx",
            "mov r10d, 8",
            "mov edi, 4",
            "mov eax, 13",
            "syscall",
            "mov edi, 11",
            "mov eax, 13",
            "syscall",
            "ldtilecfg [{trial}]",
            "mov edx, 64",
            "tilezero tmm0",
            "tileloadd tmm1, [{trial} + rdx + 64]",
            "tileloadd tmm2, [{trial} + rdx + 64]",
            "tdpbssd tmm0, tmm1, tmm2",
            "tilestored [{trial} + rdx + 1088], tmm0",
            "tilerelease",
            "xor edi, edi",
            "jmp 4f",
            "3:",
            "mov edi, 1",
            "4:",
            "mov eax, 60",
            "syscall",
            "2:",
            trial = in(reg) &raw mut *trial,
            action = in(reg) action.as_mut_ptr(),
            inout("rax") 56_usize => child,
            inout("rdi") FLAGS => _,
            inout("rsi") 0_usize => _,
            inout("rdx") 0_usize => _,
            inout("r10") 0_usize => _,
            inout("r8") 0_usize => _,
            out("rcx") _,
            out("r11") _,
            out("tmm0") _, out("tmm1") _, out("tmm2") _,
        );
    }
    child
}

/// # Safety
/// The machine must be Linux, and the call must be given what it asks for.
unsafe fn system_call(number: usize, arguments: [usize; 4]) -> isize {
    let result: isize;
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "syscall",
            inout("rax") number as isize => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            out("rcx") _,
            out("r11") _,
            options(nostack),
        );
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_is_refused_is_no_harm() {
        let mut trial = Trial { configuration: [1; 64], ones: [[1; 64]; 16], result: [[0; 16]; 16] };
        // SAFETY: the trial is valid; its configuration is none, so that every machine refuses it.
        assert!(!unsafe { in_a_child(&mut trial) });
        assert_eq!(trial.result, [[0; 16]; 16]);
    }

    #[test]
    fn the_answer_is_that_of_the_processor() {
        // Without permission the child is refused even where the processor has tiles: ask first.
        let permitted = permitted();
        // Where the processor has no tiles, the child must have been refused.
        assert_eq!(seen_to_work() && permitted, usable());
        assert!(in_processor() || !usable());
    }
}
