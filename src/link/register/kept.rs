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
    let generator = context.cache.as_ref().ok().and_then(|cache| Some((cache, generator(cache)?)));
    let Some((cache, generator)) = generator else { return context.llvm.make_encoded(&request, purpose) };
    let key = key(&request, &generator);
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
    // If the program was replaced in the meantime, the object may be of the one before or of the one after.
    if generator.verify_unchanged(context.llvm.created()).is_ok() {
        let (later, copy) = (Arc::clone(cache), object.clone());
        cache.later(move || later.put_own_record(key, &copy));
    }
    Ok(object)
}

/// The program that would generate an object; none if it cannot be identified.
fn generator(cache: &Arc<Cache>) -> Option<Tool> {
    Tool::of(&program::find().ok()?, cache).ok()
}

/// The cache key of the object of `request` by `generator`.
fn key(request: &[u8], generator: &Tool) -> Digest {
    let mut key = KeyBuilder::default();
    key.add("registration object").add(BUILD).add(generator.digest.to_string()).add(request);
    key.digest()
}
