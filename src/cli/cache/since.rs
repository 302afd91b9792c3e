//! Parses points in time on a command line: a duration before now, a time of day, or a date with a
//! time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, anyhow, bail};
use jiff::tz::TimeZone;
use jiff::{Timestamp, civil};

/// Parses `text` relative to `now`. If `text` has no time zone, the machine's time zone applies.
pub(super) fn moment(text: &str, now: SystemTime) -> Result<SystemTime> {
    let zone = TimeZone::system();
    if let Some(seconds) = text
        .strip_prefix('@')
        .and_then(|seconds| seconds.parse::<u64>().ok())
    {
        return UNIX_EPOCH
            .checked_add(Duration::from_secs(seconds))
            .ok_or_else(|| unknown(text));
    }
    if let Some(length) = length(text) {
        return now
            .checked_sub(length)
            .filter(|then| *then >= UNIX_EPOCH)
            .ok_or_else(|| unknown(text));
    }
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Ok(moment.into());
    }
    if let Ok(time) = format!(
        "{text}{}",
        if text.matches(':').count() == 1 {
            ":00"
        } else {
            ""
        }
    )
    .parse::<civil::Time>()
        && text.contains(':')
        && !text.contains('-')
    {
        let today = Timestamp::try_from(now)?.to_zoned(zone.clone()).date();
        let moment = SystemTime::from(today.to_datetime(time).to_zoned(zone)?.timestamp());
        if moment > now {
            bail!("--since={text}: {text} is later than the current time");
        }
        return Ok(moment);
    }
    match text.parse::<civil::DateTime>() {
        Ok(moment) => Ok(moment.to_zoned(zone)?.timestamp().into()),
        Err(_) => Err(unknown(text)),
    }
}

/// Parses a duration: `90s`, `15m`, `2h`, `1d`, `2h30m`.
fn length(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (count, after) = rest.split_at_checked(digits)?;
        let seconds = match after.chars().next()? {
            's' => 1,
            'm' => 60,
            'h' => 60 * 60,
            'd' => 24 * 60 * 60,
            _ => return None,
        };
        total = total.checked_add(Duration::from_secs(
            count.parse::<u64>().ok()?.checked_mul(seconds)?,
        ))?;
        rest = after.get(1..)?;
    }
    (!text.is_empty()).then_some(total)
}

fn unknown(text: &str) -> anyhow::Error {
    anyhow!(
        "invalid time '{text}' for --since: expected a duration such as 90s, 15m, 2h or 1d, a time such as 14:30 or \
         2026-11-23T14:30, or seconds since 1970 such as @1700000000"
    )
}

/// Formats a point in time, in microseconds since 1970, in the machine's time zone:
/// `2026-11-23 14:30:05`.
pub(super) fn shown(micros: u64) -> String {
    let moment = i64::try_from(micros)
        .ok()
        .and_then(|micros| Timestamp::from_microsecond(micros).ok());
    let zoned = moment.map(|moment| moment.to_zoned(TimeZone::system()));
    zoned.map_or_else(
        || format!("@{}", micros / 1_000_000),
        |zoned| zoned.strftime("%Y-%m-%d %H:%M:%S").to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments() {
        let now = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let before = |text: &str| {
            now.duration_since(moment(text, now).unwrap())
                .unwrap()
                .as_secs()
        };
        let lengths = [
            ("90s", 90),
            ("15m", 900),
            ("2h30m", 9000),
            ("1d", 86_400),
            ("@1699999999", 1),
        ];
        for (text, seconds) in lengths {
            assert_eq!(before(text), seconds, "{text}");
        }
        assert_eq!(before("2023-11-14T22:13:19Z"), 1);
        assert_eq!(before("2023-11-14T22:13:19+00:00"), 1);
        // In every time zone, the formatted time parses to the same point in time.
        let text = shown(1_699_999_990_000_000);
        assert_eq!(before(&text), 10, "{text}");
        let midnight = before("00:00");
        assert!(midnight < 25 * 60 * 60, "{midnight}");
        for text in [
            "",
            "x",
            "5",
            "5y",
            "m",
            "@",
            "@x",
            "99999999999999999999s",
            "25:00",
            "2023-13-01T00:00",
            "200000d",
        ] {
            assert!(moment(text, now).is_err(), "{text}");
        }
    }
}
