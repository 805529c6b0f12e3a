// SPDX-License-Identifier: GPL-2.0-only
//! Lists of CPUs for messages.

/// Format CPU ids as the kernel does: "0-3,8".
pub fn list(cpus: &[usize]) -> String {
    let runs = cpus.chunk_by(|a, b| a + 1 == *b);
    let text = |run: &[usize]| match run {
        [only] => only.to_string(),
        _ => format!("{}-{}", run[0], run[run.len() - 1]),
    };
    let texts: Vec<_> = runs.map(text).collect();
    texts.join(",")
}

#[cfg(test)]
mod tests {
    #[test]
    fn runs_are_joined() {
        assert_eq!(super::list(&[0, 2, 3, 4, 7]), "0,2-4,7");
        assert_eq!(super::list(&[]), "");
    }
}
