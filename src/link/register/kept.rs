//! The cache of registration objects. The key of an object is made of its plan, including the images that are part of it, and of
//! the program that generates it. It is host code that runs before `main`, so it is sent to a shared cache and taken from one only
//! where what is there is signed (`OFFLD_CACHE_KEY`).

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;

use super::RegisterContext;
use crate::link::device::Tool;
use crate::llvm::protocol::{BUILD, Form, Request};
use crate::llvm::{Purpose, program};
use crate::registration::Plan;
use crate::store::{Cache, Event, Key};
use crate::sys::session::Session;

/// The object of `plan`: from the cache, else generated and put there.
pub(super) fn object(plan: &Plan, purpose: &Purpose, context: &RegisterContext<'_>, session: &Session) -> Result<Vec<u8>> {
    let request = Request::Make { form: Form::Object, plan: plan.clone() }.encode()?;
    let (Ok(cache), Ok(program)) = (context.cache, program::find()) else {
        return context.llvm.make_encoded(&request, purpose);
    };
    let say = |what: &str| {
        if context.verbose {
            session.shell.note(&format!("{}: {what}", purpose.step));
        }
    };
    let known = generator(&program, cache);
    let found = known.as_ref().map(|generator| key(&request, generator, cache)).and_then(|key| Some((key, cache.code(key)?)));
    if let Some((key, object)) = found {
        cache.count(Event::RegistrationHit);
        say(if cache.was_shared_record(key) { "found in the shared cache" } else { "found in the cache" });
        return Ok(object);
    }
    cache.count(Event::RegistrationMiss);
    say("not in the cache");
    let object = context.llvm.make_encoded(&request, purpose)?;
    let (later, copy, since) = (Arc::clone(cache), object.clone(), context.llvm.created());
    cache.later(move || {
        let generator = known.or_else(|| Tool::of(&program, &later).ok());
        // If the program was replaced in the meantime, the object may be of the one before or of the one after.
        if let Some(generator) = generator.filter(|generator| generator.verify_unchanged(since).is_ok()) {
            later.put_code(key(&request, &generator, &later), &copy);
        }
    });
    Ok(object)
}

/// The request for the object of `plan`, if the object is not in the cache.
pub(super) fn missing(plan: &Plan, context: &RegisterContext<'_>) -> Option<Vec<u8>> {
    let request = Request::Make { form: Form::Object, plan: plan.clone() }.encode().ok()?;
    let Ok(cache) = context.cache else { return Some(request) };
    let known = program::find().ok().and_then(|program| generator(&program, cache));
    let found = known.and_then(|generator| cache.code(key(&request, &generator, cache)));
    found.is_none().then_some(request)
}

/// What is known of the program that generates objects, as far as it is of use now. One that is not known yet has generated nothing
/// that this machine has kept, and getting to know it takes a while; but another machine may have shared what its own one made.
fn generator(program: &Path, cache: &Arc<Cache>) -> Option<Tool> {
    let known = Tool::from_record(program, cache);
    known.or_else(|| if cache.is_signed() { Tool::of(program, cache).ok() } else { None })
}

/// The key in `cache` of the object of `request` by `generator`.
fn key(request: &[u8], generator: &Tool, cache: &Cache) -> Key {
    let mut key = cache.shared_key("registration object 2");
    key.add(BUILD).add(generator.digest.bytes()).add(request);
    key.key()
}
