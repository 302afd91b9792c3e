//! The cache of registration objects. The key of an object is made of its plan, including the images, and of the program that generates
//! it. It is host code that runs before `main`, so it is cached on this machine only: never sent to a shared cache, nor taken from one.

use std::sync::Arc;

use anyhow::Result;

use super::RegisterContext;
use crate::link::device::Tool;
use crate::llvm::protocol::{BUILD, Form, Request};
use crate::llvm::{Purpose, program};
use crate::registration::Plan;
use crate::store::{Cache, Digest, Event, KeyBuilder};
use crate::sys::session::Session;

/// The object of `plan`: from the cache, else generated and put there.
pub(super) fn object(plan: &Plan, purpose: &Purpose, context: &RegisterContext<'_>, session: &Session) -> Result<Vec<u8>> {
    let request = Request::Make { form: Form::Object, plan: plan.clone() }.encode()?;
    let kept = context.cache.as_ref().ok().and_then(|cache| Some((cache, key(&request, cache)?)));
    let Some((cache, key)) = kept else { return context.llvm.make_encoded(&request, purpose) };
    let say = |what: &str| {
        if context.verbose {
            session.shell.note(&format!("{}: {what}", purpose.step));
        }
    };
    if let Some(object) = cache.own_record(key) {
        cache.count(Event::RegistrationHit);
        say("found in the cache");
        return Ok(object);
    }
    cache.count(Event::RegistrationMiss);
    say("not in the cache");
    let object = context.llvm.make_encoded(&request, purpose)?;
    let (later, copy) = (Arc::clone(cache), object.clone());
    cache.later(move || later.put_own_record(key, &copy));
    Ok(object)
}

/// The cache key of the object of `request`; none if the program that would generate it cannot be identified.
fn key(request: &[u8], cache: &Arc<Cache>) -> Option<Digest> {
    let program = program::find().ok()?;
    let maker = Tool::of(&program, cache).ok()?;
    let mut key = KeyBuilder::default();
    key.add("registration object").add(BUILD).add(maker.digest.to_string()).add(request);
    Some(key.digest())
}
