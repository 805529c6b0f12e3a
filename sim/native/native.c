// SPDX-License-Identifier: GPL-2.0-only
/*
 * The native build of src/bpf/main.bpf.c: the same source, compiled for the host against
 * scx/common.bpf.h of this folder.
 *
 * Its variables are in their own sections. So src/native.rs can reset them to the state of a
 * freshly loaded program, and can write the constants, as libbpf does before the load. Its code is
 * in its own section, too, because src/growth.rs counts which of it is executed.
 */
#include <scx/common.bpf.h>

#include <stdarg.h>
#include <stdio.h>

#pragma clang section bss = "bpf_bss" data = "bpf_data" rodata = "bpf_rodata" text = "bpf_text"
#include "main.bpf.c"
#pragma clang section bss = "" data = "" rodata = "" text = ""

#include "units.h"

static struct pt_regs regs;
struct pt_regs *__irq_regs = &regs;

int __preempt_count;
unsigned long local_interrupt_disable_state; /* as on 7.3 */

/* Let the next tick interrupt user space if @user, else the kernel. */
void sim_interrupt(bool user)
{
	regs.cs = user ? 3 : 0;
}

/* Set current's system call (-1: none), and the bits that core/context.bpf.h reads. */
void sim_context(s64 syscall, u32 count)
{
	regs.orig_ax = syscall;
	__preempt_count = count;
}

long bpf_task_pt_regs(struct task_struct *p)
{
	return (long)&regs;
}

static void report(bool error, const char *fmt, va_list args)
{
	char text[512];

	vsnprintf(text, sizeof(text), fmt, args);
	sim_report(error, text);
}

void sim_error(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	report(true, fmt, args);
	va_end(args);
}

void sim_dump(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	report(false, fmt, args);
	va_end(args);
}

#if __has_feature(address_sanitizer)
/* A scenario is one process, so memory that it does not free is no leak. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "detect_leaks=0:allow_addr2line=1";
}

const char *__ubsan_default_options(void);
const char *__ubsan_default_options(void)
{
	return "print_stacktrace=1";
}
#endif
