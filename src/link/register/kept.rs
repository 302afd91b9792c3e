//! The cache of registration objects. The key of an object is made of its plan, including the images that are part of it, and of
//! the program that generates it. It is host code that runs before `main`, so it is cached on this machine only: never sent to a
//! shared cache, nor taken from one.

use std::sync::Arc;

use anyhow::Result;

use super::RegisterContext;
use crate::link::device::Tool;
use crate::llvm::protocol::{BUILD, Form, Request};
use crate::llvm::{Purpose, program};
use crate::registration::Plan;
use crate::store::{Digest, Event, KeyBuilder};
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
    let known = Tool::from_record(&program, cache);
    if let Some(object) = known.as_ref().and_then(|generator| cache.own_record(key(&request, generator))) {
        cache.count(Event::RegistrationHit);
        say("found in the cache");
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
            later.put_own_record(key(&request, &generator), &copy);
        }
    });
    Ok(object)
}

/// The request for the object of `plan`, if the object is not in the cache.
pub(super) fn missing(plan: &Plan, context: &RegisterContext<'_>) -> Option<Vec<u8>> {
    let request = Request::Make { form: Form::Object, plan: plan.clone() }.encode().ok()?;
    let Ok(cache) = context.cache else { return Some(request) };
    // A program that is not known yet has generated nothing that is in the cache, and getting to know it takes a while.
    let known = program::find().ok().and_then(|program| Tool::from_record(&program, cache));
    let found = known.and_then(|generator| cache.own_record(key(&request, &generator)));
    found.is_none().then_some(request)
}

/// The cache key of the object of `request` by `generator`.
fn key(request: &[u8], generator: &Tool) -> Digest {
    let mut key = KeyBuilder::default();
    key.add("registration object").add(BUILD).add(generator.digest.to_string()).add(request);
    key.digest()
}
