//! Round trips and damaged streams. The tests of `wrapper` use streams from LLVM.

use super::images::{FIRST_MARK, insert};
use super::*;
use crate::compose::{Part, join};
use proptest::prelude::*;

/// The bytes of a stream without holes.
fn bytes(stream: &Stream) -> Vec<u8> {
    join(&[], &write(stream).unwrap().parts, &[]).unwrap()
}

fn long(values: &[u64]) -> Item {
    Item::Record(Record {
        abbreviation: None,
        values: values.to_vec(),
        tail: Tail::None,
    })
}

fn block(id: u32, items: Vec<Item>) -> Item {
    Item::Block(Block {
        id,
        width: 4,
        items,
        inherited: 0,
        was_at: 0,
    })
}

fn value_of(operand: Operand) -> BoxedStrategy<u64> {
    match operand {
        Operand::Literal(value) => Just(value).boxed(),
        Operand::Fixed(0) => Just(0).boxed(),
        Operand::Fixed(width) => (0..=u64::MAX >> (64 - width)).boxed(),
        Operand::Char6 => prop::sample::select(CHAR6_CHARS.to_vec())
            .prop_map(u64::from)
            .boxed(),
        _ => any::<u64>().boxed(),
    }
}

fn scalar() -> impl Strategy<Value = Operand> {
    prop_oneof![
        any::<u64>().prop_map(Operand::Literal),
        (0u32..=64).prop_map(Operand::Fixed),
        (2u32..=64).prop_map(Operand::Vbr),
        Just(Operand::Char6)
    ]
}

/// An abbreviation and a matching record.
fn record() -> impl Strategy<Value = (Abbreviation, Vec<u64>, Tail)> {
    let end = prop_oneof![
        Just(None),
        scalar()
            .prop_filter("takes bits", |of| !matches!(
                of,
                Operand::Literal(_) | Operand::Fixed(0)
            ))
            .prop_map(Some),
    ];
    (prop::collection::vec(scalar(), 1..5), end, any::<bool>()).prop_flat_map(
        |(scalars, array, blob)| {
            let mut operands = scalars.clone();
            let rest = match array {
                Some(of) => {
                    operands.extend([Operand::Array, of]);
                    prop::collection::vec(value_of(of), 0..20).boxed()
                }
                None => Just(Vec::new()).boxed(),
            };
            let blob = if blob && array.is_none() {
                operands.push(Operand::Blob);
                prop::collection::vec(any::<u8>(), 0..40)
                    .prop_map(Tail::Blob)
                    .boxed()
            } else {
                Just(Tail::None).boxed()
            };
            let values = scalars.into_iter().map(value_of).collect::<Vec<_>>();
            (
                Just(Abbreviation { operands }),
                (values, rest).prop_map(|(one, two)| [one, two].concat()),
                blob,
            )
        },
    )
}

proptest! {
    #[test]
    fn round_trip(records in prop::collection::vec(record(), 1..6), plain in prop::collection::vec(any::<u64>(), 1..9)) {
        // Half of the abbreviations are the block's own, half come from BLOCKINFO.
        let (mut info, mut items) = (vec![long(&[SETBID, 8])], Vec::new());
        let made: Vec<_> = records.iter().map(|(abbreviation, ..)| Arc::new(abbreviation.clone())).collect();
        let given = made.len() / 2;
        info.extend(made[..given].iter().map(|each| Item::Abbreviation(Arc::clone(each))));
        items.extend(made[given..].iter().map(|each| Item::Abbreviation(Arc::clone(each))));
        for (index, (_, values, tail)) in records.iter().enumerate() {
            let abbreviation = Some((FIRST_OWN + index as u32, Arc::clone(&made[index])));
            items.push(Item::Record(Record { abbreviation, values: values.clone(), tail: tail.clone() }));
        }
        items.push(block(21, vec![long(&plain)]));
        let first = Stream { items: vec![block(0, info), block(8, items)] };
        let binary = bytes(&first);
        let again = read(&binary).unwrap();
        prop_assert_eq!(bytes(&again), binary.clone());
        let (Some(Item::Block(one)), Some(Item::Block(two))) = (first.items.get(1), again.items.get(1)) else { panic!() };
        prop_assert_eq!(two.inherited as usize, given);
        prop_assert_eq!(&one.items[..one.items.len() - 1], &two.items[..two.items.len() - 1]);
        for cut in 0..binary.len() {
            let whole = cut == 4 || cut as u64 * 8 == two.was_at;
            prop_assert_eq!(read(&binary[..cut]).is_ok(), whole, "{}", cut);
        }
    }

    #[test]
    fn w2_what_is_broken_is_an_error_and_no_more(mut data in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&data);
        data.splice(0..0, MAGIC);
        if let Ok(stream) = read(&data) {
            let _ = write(&stream);
        }
        let _ = insert(&data, &[3]);
    }
}

/// A module with images of these lengths and LLVM's layout: types, constants, a function, and the
/// table with its offset.
fn module(lengths: &[u64]) -> Vec<u8> {
    let mut types = vec![long(&[1, 9]), long(&[7, 8])];
    let mut constants = Vec::new();
    for (index, length) in lengths.iter().enumerate() {
        types.push(long(&[11, *length, 0]));
        constants.extend([long(&[1, index as u64 + 1]), long(&[2])]);
    }
    let build = |function: u64, table: u64| {
        let symbols = vec![long(&[3, 5, function])];
        let items = vec![
            block(17, types.clone()),
            long(&[13, table]),
            block(11, constants.clone()),
            block(12, vec![long(&[1, 1])]),
            block(14, symbols),
        ];
        Stream {
            items: vec![block(8, items)],
        }
    };
    let placed = write(&build(0, 0)).unwrap().placed;
    bytes(&build(placed[3].is_at / 32, placed[4].is_at / 32))
}

#[test]
fn images_get_their_types_their_places_and_offsets() {
    let plain = module(&[FIRST_MARK, 12, FIRST_MARK + 1]);
    let parts = insert(&plain, &[100_000, 0]).unwrap();
    assert!(
        matches!(parts[..], [Part::Bytes(_), Part::New(0), Part::Bytes(_)]),
        "{parts:?}"
    );
    let all = join(&[], &parts, &[&[0x81; 100_000]]).unwrap();
    let Item::Block(module) = read(&all).unwrap().items.remove(0) else {
        panic!()
    };
    let [
        Item::Block(types),
        Item::Record(table_at),
        Item::Block(constants),
        Item::Block(function),
        Item::Block(table),
    ] = &module.items[..]
    else {
        panic!("{module:?}");
    };
    assert_eq!(
        types.items[2..],
        [
            long(&[11, 100_000, 0]),
            long(&[11, 12, 0]),
            long(&[11, 0, 0])
        ]
    );
    assert_eq!(table_at.values, [13, table.was_at / 32]);
    assert_eq!(table.items, [long(&[3, 5, function.was_at / 32])]);
    let [made @ .., _, Item::Record(image), _, _, _, _] = &constants.items[..] else {
        panic!()
    };
    assert!(
        made.len() == 8
            && made
                .iter()
                .all(|each| matches!(each, Item::Abbreviation(_)))
    );
    assert_eq!(
        (
            constants.width,
            image.values.len(),
            image.values[0],
            &image.values[1..]
        ),
        (4, 100_001, 8, &[0x81; 100_000][..])
    );
    let rest = &constants.items[10..];
    assert_eq!(
        rest,
        [long(&[1, 2]), long(&[2]), long(&[1, 3]), long(&[2])],
        "zeros that are no images stay"
    );
}

#[test]
fn a_module_without_the_places_is_an_error() {
    let fault = |lengths: &[u64], sizes: &[u64]| insert(&module(lengths), sizes).unwrap_err().what;
    assert_eq!(fault(&[7], &[3]), "the module lacks the array of an image");
    assert_eq!(
        fault(&[FIRST_MARK + 1], &[3]),
        "an array of an unexpected length"
    );
    assert_eq!(
        fault(&[FIRST_MARK], &[1 << 32]),
        "an image of 4 GiB or more does not fit into bitcode"
    );
}
