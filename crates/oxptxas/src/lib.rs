//! Library API and driver.
