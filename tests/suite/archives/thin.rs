//! Thin archives that GNU ar makes of archives, and thin archives with missing members.

use libtest_mimic::{Failed, Trial};

use crate::kit::Image;
use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, passed, run, run_failing, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm(
            "archives::members_of_archives_in_a_thin_archive",
            members_of_archives,
        ),
        with_llvm(
            "archives::a_missing_member_that_nobody_needs",
            missing_member,
        ),
    ]
}

/// Objects with device code, a caller of the first one, and `in.a`, an archive of them.
fn objects(work: &Work) -> Result<(), Failed> {
    work.fat_with(
        "one.o",
        &[Image::amd("gfx90a", "1")],
        "int one(void) { return 1; }\n",
    )?;
    work.fat_with(
        "a_long_name_that_goes_into_the_table.o",
        &[Image::amd("gfx90a", "2")],
        "int two(void) { return 2; }\n",
    )?;
    work.fat_with(
        "three.o",
        &[Image::amd("gfx90a", "3")],
        "int three(void) { return 3; }\n",
    )?;
    work.fat_with(
        "main.o",
        &[Image::amd("gfx90a", "M")],
        "int one(void), two(void);\nint main(void) { return one() + two(); }\n",
    )?;
    work.run(
        "ar",
        [
            "rcs",
            "in.a",
            "one.o",
            "a_long_name_that_goes_into_the_table.o",
        ],
    )?;
    Ok(())
}

fn members_of_archives() -> Outcome {
    let work = Work::new();
    objects(&work)?;
    work.run("ar", ["rcsT", "thin.a", "in.a", "three.o"])?;
    let stored = std::fs::read(work.path().join("thin.a"))?;
    ensure(
        stored.windows(3).any(|window| window == b"/0:"),
        || "this ar stores no such names, so this test shows nothing",
    )?;
    // The link needs two members of the inner archive, and not the thin archive's own member.
    run(&mut work.wrapper(["-o", "x", "main.o", "thin.a"]))?;
    let images = work.images()?;
    expect_equal("images", "1", &images.len().to_string())?;
    expect_equal("device code", "M12", &images[0].1)?;
    work.forget();
    run(&mut work.wrapper(["-o", "x", "main.o", "--whole-archive", "thin.a"]))?;
    expect_equal("device code of all", "M123", &work.images()?[0].1)?;
    let shown = run(work
        .command(crate::support::offld())
        .args(["inspect", "thin.a"]))?;
    expect_in(&shown, "3 device images")?;
    // GNU ld accepts the archive, too, and the program works.
    run(work
        .command("cc")
        .args(["main.o", "thin.a", "-o", "program"]))?;
    expect_equal(
        "status",
        "Some(3)",
        &format!("{:?}", work.command("./program").status()?.code()),
    )?;
    // The error for a missing member names the thin archive and the member's own archive.
    work.run("ar", ["rcs", "in.a", "three.o"])?;
    work.file("in.a", "!<arch>\n");
    let stderr = run_failing(&mut work.wrapper(["-o", "x", "main.o", "thin.a"]))?;
    expect_in(&stderr, "thin.a(in.a)")?;
    passed()
}

fn missing_member() -> Outcome {
    let work = Work::new();
    objects(&work)?;
    work.run(
        "ar",
        [
            "rcsT",
            "thin.a",
            "three.o",
            "one.o",
            "a_long_name_that_goes_into_the_table.o",
        ],
    )?;
    std::fs::remove_file(work.path().join("three.o"))?;
    run(&mut work.wrapper(["-o", "x", "main.o", "thin.a"]))?;
    expect_equal("device code", "M12", &work.images()?[0].1)?;
    // A missing member is an error if it is linked in any case. The error names the member.
    let stderr =
        run_failing(&mut work.wrapper(["-o", "x", "main.o", "--whole-archive", "thin.a"]))?;
    expect_in(&stderr, "three.o")?;
    passed()
}
